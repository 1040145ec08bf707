// Arithmetic with digests in place of tensors: every value is one word that depends on all that it was made from and on the
// order in which it was made. A stale weight, a sum in another order, an update with another rate is another word.
#pragma once

#include <bit>
#include <cstdint>

#include "base/ids.hpp"
#include "engine/control/decision_record.hpp"
#include "sim/world/event_queue.hpp"

namespace kintsugi::sim::protocol {

using Mark = std::uint64_t;

// A gradient, summed over microbatches: which ones is known beside the mark, one bit each, so that a sample that enters twice
// or not at all is named where it happens. At most 64 microbatches a step.
struct Sum {
  Mark mark = 0;
  std::uint64_t samples = 0;
  bool operator==(const Sum&) const = default;
};

// left + right, which is not right + left.
inline Sum add(const Sum& left, const Sum& right) {
  return {fold(fold(0xADD, left.mark), right.mark), left.samples | right.samples};
}
inline Mark mix(std::uint64_t what, std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) {
  return fold(fold(fold(what, a), b), c);
}

// Of the state of one shard.
inline Mark initial_state(std::uint64_t seed, ShardId shard) {
  return mix(1, seed, shard.value);
}
inline Mark next_state(Mark state, Mark gradient, const DecisionRecord& r) {
  if (r.outcome == Outcome::skip) return state;
  const std::uint64_t rates =
      std::uint64_t{std::bit_cast<std::uint32_t>(r.learning_rate)} << 32 | std::bit_cast<std::uint32_t>(r.clip_scale);
  const std::uint64_t corrections = std::uint64_t{std::bit_cast<std::uint32_t>(r.bias_correction1)} << 32 |
                                    std::bit_cast<std::uint32_t>(r.bias_correction2);
  return fold(mix(2, state, gradient, rates), corrections);
}
inline Digest digest_of_state(Mark state) {
  return {mix(3, state), mix(4, state)};
}
inline Mark published(Mark state) {
  return mix(5, state);
}

// [0, 1).
inline double as_number(Mark mark) {
  return static_cast<double>(mark >> 11) * 0x1.0p-53;
}

}  // namespace kintsugi::sim::protocol
