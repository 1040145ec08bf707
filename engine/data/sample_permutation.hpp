// The order of the samples of one pass: a keyed bijection on [0, n) in O(1) memory, another one each pass.
// A balanced Feistel network over the next even power of two (Luby and Rackoff 1988) with cycle walking (Black and
// Rogaway, "Ciphers with arbitrary finite domains", 2002): outside values are encrypted again until one falls inside,
// fewer than four times on average. The round function is Philox, keyed by (seed, pass).
#pragma once

#include <cstdint>

#include "base/philox.hpp"

namespace kintsugi {

class SamplePermutation {
 public:
  // 1 <= count <= 2^62.
  SamplePermutation(std::uint64_t count, std::uint64_t seed, std::uint64_t pass);

  std::uint64_t count() const { return count_; }
  // The sample at place `i` < count of the pass.
  std::uint64_t operator()(std::uint64_t i) const;

 private:
  std::uint64_t encrypt(std::uint64_t value) const;

  std::uint64_t count_;
  PhiloxKey key_;
  std::uint64_t pass_;
  unsigned half_bits_;
};

}  // namespace kintsugi
