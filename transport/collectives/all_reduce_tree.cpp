#include "transport/collectives/all_reduce_tree.hpp"

#include <algorithm>

#include "base/units.hpp"

namespace kintsugi::transport::collectives {
namespace {

constexpr std::int64_t kLine = 16;          // float32 of a cache line
constexpr std::int64_t kChunk = 128 << 10;  // elements, 512 KiB: of few ranks' chunks the sum stays in a core's cache

struct Chunk {
  Slice slice;
  std::uint32_t number = 0;
};

std::vector<Chunk> chunks_of(const Slice& slice) {
  std::vector<Chunk> chunks;
  for (std::int64_t at = 0; at < slice.count; at += kChunk) {
    chunks.push_back(
        {{slice.first + at, std::min(kChunk, slice.count - at)}, static_cast<std::uint32_t>(chunks.size())});
  }
  return chunks;
}

class AllReduce {
 public:
  AllReduce(const Party& party, const std::vector<RankId>& ranks, kernels::View data, Step step, Instant deadline)
      : party_(party), ranks_(ranks), data_(data), step_(step), deadline_(deadline) {
    const auto self = std::find(ranks.begin(), ranks.end(), party.self);
    KINTSUGI_ASSERT(self != ranks.end() && data.dtype == kernels::DType::float32);
    own_ = static_cast<std::uint32_t>(self - ranks.begin());
  }

  Result<void> run() {
    KINTSUGI_TRY(lend_slices());
    KINTSUGI_TRY(reduce_own_slice());
    KINTSUGI_TRY(collect_other_slices());
    std::reverse(tickets_.begin(), tickets_.end());  // the last sent is the last released: most waits are one
    return wait_all_sent(party_.links, tickets_, deadline_);
  }

 private:
  Slice slice(std::uint32_t index) const {
    return slice_of(data_.count, static_cast<std::int64_t>(ranks_.size()), index);
  }
  kernels::View view(const Slice& s) const { return data_.slice(s.first, s.count); }

  Result<void> send(RankId to, MessageKind kind, std::uint32_t item, std::uint32_t part, const Slice& s) {
    KINTSUGI_TRY_ASSIGN(const SendTicket ticket,
                        party_.links.send(to, {kind, step_, item, part}, lendable(party_, view(s)), deadline_));
    tickets_.push_back(ticket);
    return {};
  }

  Result<void> lend_slices() {
    for (std::uint32_t i = 1; i < ranks_.size(); ++i) {
      const auto owner = static_cast<std::uint32_t>((own_ + i) % ranks_.size());
      if (slice(owner).count == 0) continue;
      KINTSUGI_TRY(send(ranks_[owner], MessageKind::partial_sum, owner, 0, slice(owner)));
    }
    return {};
  }

  Result<void> reduce_own_slice() {
    const Slice own = slice(own_);
    if (own.count == 0) return {};
    std::vector<kernels::View> lanes;
    std::vector<HeldArrival> held;
    held.reserve(ranks_.size());
    for (std::uint32_t i = 0; i < ranks_.size(); ++i) {
      if (i == own_) {
        lanes.push_back(view(own));
        continue;
      }
      KINTSUGI_TRY_ASSIGN(
          const Arrival arrival,
          party_.links.receive(ranks_[i], {MessageKind::partial_sum, step_, own_, 0}, view(own).bytes(), deadline_));
      held.emplace_back(party_.links, arrival);
      lanes.push_back(party_.device.host_visible(arrival.bytes, kernels::DType::float32));
    }
    const std::vector<std::int64_t> one_each(ranks_.size(), 1);
    std::vector<kernels::View> parts(lanes.size());
    for (const Chunk& chunk : chunks_of(own)) {
      for (std::size_t i = 0; i < lanes.size(); ++i) {
        parts[i] = lanes[i].slice(chunk.slice.first - own.first, chunk.slice.count);
      }
      party_.device.ops().tree_sum(party_.stream, view(chunk.slice), parts, one_each,
                                   static_cast<std::int64_t>(ranks_.size()));
      for (std::uint32_t i = 1; i < ranks_.size(); ++i) {
        const RankId to = ranks_[(own_ + i) % ranks_.size()];
        KINTSUGI_TRY(send(to, MessageKind::weights, own_, chunk.number, chunk.slice));
      }
    }
    return {};
  }

  // A chunk of a slice arrives only after its owner has read this rank's lane of it: it may be overwritten.
  Result<void> collect_other_slices() {
    for (std::uint32_t i = 1; i < ranks_.size(); ++i) {
      const auto owner = static_cast<std::uint32_t>((own_ + i) % ranks_.size());
      for (const Chunk& chunk : chunks_of(slice(owner))) {
        const kernels::View into = view(chunk.slice);
        KINTSUGI_TRY_ASSIGN(const Arrival arrival,
                            party_.links.receive(ranks_[owner], {MessageKind::weights, step_, owner, chunk.number},
                                                 into.bytes(), deadline_));
        const HeldArrival held(party_.links, arrival);
        party_.device.copy_to_device(party_.stream, into, held.bytes().data());
      }
    }
    return {};
  }

  const Party& party_;
  const std::vector<RankId>& ranks_;
  const kernels::View data_;
  const Step step_;
  const Instant deadline_;
  std::uint32_t own_ = 0;
  std::vector<SendTicket> tickets_;
};

}  // namespace

Slice slice_of(std::int64_t elements, std::int64_t slices, std::int64_t index) {
  KINTSUGI_ASSERT(slices > 0 && index >= 0 && index < slices);
  const std::int64_t lines = elements / kLine;
  const std::int64_t first = lines * index / slices * kLine;
  const std::int64_t end = index + 1 == slices ? elements : lines * (index + 1) / slices * kLine;
  return {first, end - first};
}

Result<void> all_reduce_tree(const Party& party, const std::vector<RankId>& ranks, kernels::View data, Step step,
                             Instant deadline) {
  return AllReduce(party, ranks, data, step, deadline).run();
}

}  // namespace kintsugi::transport::collectives
