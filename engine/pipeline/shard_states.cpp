#include "engine/pipeline/shard_states.hpp"

#include <algorithm>
#include <thread>

#include "engine/state/learning_rate.hpp"

namespace kintsugi {

using kernels::DType;
using kernels::View;

namespace {

std::vector<Shard> shards_of(const RankProgram& program, const ModelLayout& layout) {
  std::vector<Shard> shards;
  for (const ShardId s : program.shards) shards.push_back(layout.shard(s));
  return shards;
}

}  // namespace

std::size_t ShardStates::segment_bytes(const RankProgram& program, const ModelLayout& layout) {
  return ShardStoreLayout(shards_of(program, layout)).bytes();
}

ShardStates::ShardStates(const Parts& parts)
    : parts_(parts),
      store_(shards_of(parts.program, parts.layout)),
      squared_norms_(parts.program.shards.size()),
      digests_(parts.program.shards.size()) {
  for (const ShardExtent& extent : store_.extents()) {
    slots_.emplace_back(parts.segment, extent);
    decay_.push_back(decay_ranges(parts.layout, extent.shard));
  }
}

View ShardStates::array(std::size_t index, std::size_t offset_bytes) const {
  return parts_.device_segment.as(DType::float32, offset_bytes, slots_[index].shard().count);
}

View ShardStates::published(std::size_t index) const {
  const Shard& shard = slots_[index].shard();
  return parts_.memory.weights[shard.group.value].slice(shard.offset, shard.count);
}

// As many shards at a time as the device has threads: initial values of a large model take seconds on one.
Result<void> ShardStates::create(Step version, std::uint64_t updates, const Fill& fill) {
  const std::size_t width = static_cast<std::size_t>(parts_.device.traits().threads);
  for (std::size_t first = 0; first < slots_.size(); first += width) {
    const std::size_t count = std::min(width, slots_.size() - first);
    std::vector<std::vector<float>> hosts(count);
    std::vector<Result<void>> filled(count);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        const Shard& shard = slots_[first + i].shard();
        const std::size_t n = static_cast<std::size_t>(shard.count);
        hosts[i].resize(3 * n);
        const std::span<float> all(hosts[i]);
        filled[i] = fill(shard, {all.subspan(0, n), all.subspan(n, n), all.subspan(2 * n, n)});
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < count; ++i) {
      KINTSUGI_TRY(filled[i]);
      KINTSUGI_TRY(store(first + i, {version, updates, {}, parts_.incarnation}, hosts[i]));
    }
  }
  return {};
}

Result<void> ShardStates::store(std::size_t index, const ShardVersion& version, std::span<const float> host) {
  slots_[index].format(parts_.incarnation);
  const ShardExtent& extent = store_.extents()[index];
  const std::size_t n = host.size() / 3;
  const View arrays[] = {array(index, extent.master), array(index, extent.moment1), array(index, extent.moment2)};
  for (std::size_t a = 0; a < 3; ++a) parts_.device.copy_to_device(parts_.stream, arrays[a], host.data() + a * n);
  const View digest = parts_.memory.digests.slice(16 * static_cast<std::int64_t>(index), 16);
  parts_.device.ops().state_digest(parts_.stream, digest, arrays[0], arrays[1], arrays[2]);
  std::uint64_t words[2] = {};
  parts_.device.copy_to_host(parts_.stream, words, digest);
  KINTSUGI_TRY(parts_.stream.synchronize(parts_.communicator.deadline()));
  digests_[index] = {words[0], words[1]};
  ShardVersion stable = version;
  stable.digest = digests_[index];
  slots_[index].finish(stable);
  return {};
}

void ShardStates::enqueue_norms() {
  std::vector<View> reduced;
  for (const ShardSlot& slot : slots_) reduced.push_back(parts_.memory.reduced.at(slot.shard().id));
  parts_.device.ops().squared_norms(parts_.stream, parts_.memory.squared_norms, reduced);
  parts_.device.copy_to_host(parts_.stream, squared_norms_.data(), parts_.memory.squared_norms);
}

std::vector<ShardVote> ShardStates::votes() const {
  std::vector<ShardVote> votes;
  for (std::size_t i = 0; i < slots_.size(); ++i)
    votes.push_back({slots_[i].shard().id, squared_norms_[i], digests_[i]});
  return votes;
}

void ShardStates::enqueue_apply(const DecisionRecord& record) {
  const ShardVersion next{record.step, record.updates, {}, parts_.incarnation};
  parts_.stream.enqueue("applying", [this]() -> Result<void> {
    for (const ShardSlot& slot : slots_) slot.begin(parts_.incarnation);
    return {};
  });
  if (record.outcome == Outcome::commit) {
    const OptimizerConfig& o = parts_.job.optimizer;
    const kernels::AdamwScalars scalars{record.learning_rate,
                                        static_cast<float>(o.beta1),
                                        static_cast<float>(o.beta2),
                                        static_cast<float>(o.epsilon),
                                        static_cast<float>(o.weight_decay),
                                        record.bias_correction1,
                                        record.bias_correction2,
                                        record.clip_scale};
    std::vector<kernels::AdamwArguments> updates;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const ShardExtent& extent = store_.extents()[i];
      updates.push_back({array(i, extent.master), array(i, extent.moment1), array(i, extent.moment2),
                         parts_.memory.reduced.at(extent.shard.id), published(i), decay_[i], scalars,
                         parts_.memory.digests.slice(16 * static_cast<std::int64_t>(i), 16)});
    }
    parts_.device.ops().adamw_many(parts_.stream, updates);
    static_assert(sizeof(Digest) == 16, "high half, then low half, as kernels store it");
    parts_.device.copy_to_host(parts_.stream, digests_.data(), parts_.memory.digests);
  }
  enqueue_finish(next);
}

void ShardStates::enqueue_finish(ShardVersion next) {
  parts_.stream.enqueue("stable", [this, next]() -> Result<void> {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      ShardVersion stable = next;
      stable.digest = digests_[i];
      slots_[i].finish(stable);
    }
    return {};
  });
}

void ShardStates::enqueue_convert() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const View to = published(i);
    const View from = array(i, store_.extents()[i].master);
    if (to.dtype == from.dtype)
      parts_.device.ops().copy(parts_.stream, to, from);
    else
      parts_.device.ops().convert(parts_.stream, to, from);
  }
}

void ShardStates::enqueue_publish(Step version) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Shard& shard = slots_[i].shard();
    std::vector<RankId> others = ranks_using(parts_.plan, parts_.layout.group(shard.group));
    std::erase(others, parts_.program.rank);
    if (!others.empty()) {
      parts_.communicator.publish({shard.id, version}, published(i), std::move(others), published_);
    }
  }
}

Result<std::vector<float>> ShardStates::read(std::size_t index) {
  const ShardExtent& extent = store_.extents()[index];
  const std::size_t n = static_cast<std::size_t>(extent.shard.count);
  std::vector<float> host(3 * n);
  parts_.device.copy_to_host(parts_.stream, host.data(), array(index, extent.master));
  parts_.device.copy_to_host(parts_.stream, host.data() + n, array(index, extent.moment1));
  parts_.device.copy_to_host(parts_.stream, host.data() + 2 * n, array(index, extent.moment2));
  KINTSUGI_TRY(parts_.stream.synchronize(parts_.communicator.deadline()));
  return host;
}

std::vector<ShardVersion> ShardStates::versions() const {
  std::vector<ShardVersion> versions;
  for (const ShardSlot& slot : slots_) {
    const std::optional<ShardVersion> stable = slot.stable();
    KINTSUGI_ASSERT_MSG(stable.has_value(), "a shard is APPLYING while its rank is idle");
    versions.push_back(*stable);
  }
  return versions;
}

std::size_t ShardStates::state_bytes() const {
  std::size_t bytes = 0;
  for (const ShardSlot& slot : slots_) bytes += 3 * sizeof(float) * static_cast<std::size_t>(slot.shard().count);
  return bytes;
}

}  // namespace kintsugi
