#include "engine/pipeline/shard_states.hpp"

#include <algorithm>
#include <thread>

#include "engine/state/learning_rate.hpp"

namespace kintsugi {

using kernels::DType;
using kernels::View;

ShardStates::ShardStates(const Parts& parts) : parts_(parts), squared_norms_(parts.program.shards.size()) {
  for (const auto* held : {&parts.program.shards, &parts.program.replicas}) {
    for (const ShardId shard : *held) {
      copies_.push_back(parts.state.find(shard));
      KINTSUGI_ASSERT_MSG(copies_.back() != nullptr, "a trainer is given memory for every copy of its plan");
      decay_.push_back(decay_ranges(parts.layout, copies_.back()->shard()));
    }
  }
  digests_.resize(copies_.size());
}

// The weights a primary writes; a replica writes none.
View ShardStates::published(std::size_t index) const {
  if (index >= primaries().end) return {};
  const Shard& shard = copies_[index]->shard();
  return parts_.memory.weights[shard.group.value].slice(shard.offset, shard.count);
}

View ShardStates::digests(CopyRange which) const {
  constexpr std::int64_t kBytes = sizeof(Digest);
  return parts_.memory.digests.slice(kBytes * static_cast<std::int64_t>(which.first),
                                     kBytes * static_cast<std::int64_t>(which.end - which.first));
}

// As many shards at a time as the device has threads: initial values of a large model take seconds on one.
Result<void> ShardStates::create(Step version, std::uint64_t updates, const Fill& fill) {
  const std::size_t width = static_cast<std::size_t>(parts_.device.traits().threads);
  for (std::size_t first = 0; first < copies_.size(); first += width) {
    const std::size_t count = std::min(width, copies_.size() - first);
    std::vector<std::vector<float>> hosts(count);
    std::vector<Result<void>> filled(count);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        const Shard& shard = copies_[first + i]->shard();
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
  const ShardCopy& copy = *copies_[index];
  copy.slot().format(parts_.incarnation);
  const std::size_t n = host.size() / 3;
  const View arrays[] = {copy.master(), copy.moment1(), copy.moment2()};
  for (std::size_t a = 0; a < 3; ++a) parts_.device.copy_to_device(parts_.stream, arrays[a], host.data() + a * n);
  const View digest = digests({index, index + 1});
  parts_.device.ops().state_digest(parts_.stream, digest, arrays[0], arrays[1], arrays[2]);
  parts_.device.copy_to_host(parts_.stream, &digests_[index], digest);
  KINTSUGI_TRY(parts_.stream.synchronize(parts_.communicator.deadline()));
  ShardVersion stable = version;
  stable.digest = digests_[index];
  copy.slot().finish(stable);
  return {};
}

void ShardStates::adopt(Step version, std::uint64_t updates) {
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    const std::optional<ShardVersion> held = copies_[i]->slot().stable();
    KINTSUGI_ASSERT_MSG(held && held->version == version && held->updates == updates,
                        "a generation begins with every copy of its plan at one step");
    digests_[i] = held->digest;
  }
}

void ShardStates::enqueue_norms() {
  std::vector<View> reduced;
  for (const ShardId shard : parts_.program.shards) reduced.push_back(parts_.memory.reduced.at(shard));
  parts_.device.ops().squared_norms(parts_.stream, parts_.memory.squared_norms, reduced);
  parts_.device.copy_to_host(parts_.stream, squared_norms_.data(), parts_.memory.squared_norms);
}

std::vector<ShardVote> ShardStates::votes() const {
  std::vector<ShardVote> votes;
  for (std::size_t i = 0; i < primaries().end; ++i) {
    votes.push_back({copies_[i]->shard().id, squared_norms_[i], digests_[i]});
  }
  return votes;
}

std::vector<ReplicaVote> ShardStates::acknowledgements() const {
  std::vector<ReplicaVote> votes;
  for (std::size_t i = replicas().first; i < copies_.size(); ++i) {
    votes.push_back({copies_[i]->shard().id, parts_.program.rank, digests_[i]});
  }
  return votes;
}

void ShardStates::enqueue_apply(const DecisionRecord& record, CopyRange which) {
  parts_.stream.enqueue("applying", [this, which]() -> Result<void> {
    for (std::size_t i = which.first; i < which.end; ++i) copies_[i]->slot().begin(parts_.incarnation);
    return {};
  });
  if (record.outcome == Outcome::commit) enqueue_update(record, which);
  const ShardVersion next{record.step, record.updates, {}, parts_.incarnation};
  parts_.stream.enqueue("stable", [this, which, next]() -> Result<void> {
    for (std::size_t i = which.first; i < which.end; ++i) {
      ShardVersion stable = next;
      stable.digest = digests_[i];
      copies_[i]->slot().finish(stable);
    }
    return {};
  });
}

void ShardStates::enqueue_update(const DecisionRecord& record, CopyRange which) {
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
  for (std::size_t i = which.first; i < which.end; ++i) {
    const ShardCopy& copy = *copies_[i];
    updates.push_back({copy.master(), copy.moment1(), copy.moment2(), parts_.memory.reduced.at(copy.shard().id),
                       published(i), decay_[i], scalars, digests({i, i + 1})});
  }
  parts_.device.ops().adamw_many(parts_.stream, updates);
  static_assert(sizeof(Digest) == 16, "high half, then low half, as kernels store it");
  parts_.device.copy_to_host(parts_.stream, digests_.data() + which.first, digests(which));
}

void ShardStates::enqueue_convert() {
  for (std::size_t i = 0; i < primaries().end; ++i) {
    const View to = published(i);
    const View from = copies_[i]->master();
    if (to.dtype == from.dtype)
      parts_.device.ops().copy(parts_.stream, to, from);
    else
      parts_.device.ops().convert(parts_.stream, to, from);
  }
}

void ShardStates::enqueue_publish(Step version) {
  for (std::size_t i = 0; i < primaries().end; ++i) {
    const Shard& shard = copies_[i]->shard();
    std::vector<RankId> others = ranks_using(parts_.plan, parts_.layout.group(shard.group));
    std::erase(others, parts_.program.rank);
    if (!others.empty()) {
      parts_.communicator.publish({shard.id, version}, published(i), std::move(others), published_);
    }
  }
}

Result<std::vector<float>> ShardStates::read(std::size_t index) {
  const ShardCopy& copy = *copies_[index];
  const std::size_t n = static_cast<std::size_t>(copy.shard().count);
  std::vector<float> host(3 * n);
  parts_.device.copy_to_host(parts_.stream, host.data(), copy.master());
  parts_.device.copy_to_host(parts_.stream, host.data() + n, copy.moment1());
  parts_.device.copy_to_host(parts_.stream, host.data() + 2 * n, copy.moment2());
  KINTSUGI_TRY(parts_.stream.synchronize(parts_.communicator.deadline()));
  return host;
}

std::vector<ShardVersion> ShardStates::versions() const {
  std::vector<ShardVersion> versions;
  for (const ShardCopy* copy : copies_) {
    const std::optional<ShardVersion> stable = copy->slot().stable();
    KINTSUGI_ASSERT_MSG(stable.has_value(), "a shard is APPLYING while its rank is idle");
    versions.push_back(*stable);
  }
  return versions;
}

std::size_t ShardStates::bytes(CopyRange which) const {
  std::size_t bytes = 0;
  for (std::size_t i = which.first; i < which.end; ++i) {
    bytes += 3 * sizeof(float) * static_cast<std::size_t>(copies_[i]->shard().count);
  }
  return bytes;
}

}  // namespace kintsugi
