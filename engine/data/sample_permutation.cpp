#include "engine/data/sample_permutation.hpp"

#include <algorithm>
#include <bit>

#include "base/assert.hpp"

namespace kintsugi {

namespace {
constexpr std::uint32_t kRounds = 8;  // four suffice against an adversary (Luby, Rackoff); small domains like more
constexpr std::uint32_t kStream = 0x64617461u;  // "data": apart from every other use of the same seed
}  // namespace

SamplePermutation::SamplePermutation(std::uint64_t count, std::uint64_t seed, std::uint64_t pass)
    : count_(count), key_(philox_key(seed)), pass_(pass) {
  KINTSUGI_ASSERT(count >= 1 && count <= std::uint64_t{1} << 62);
  half_bits_ = std::max(1u, (static_cast<unsigned>(std::bit_width(count - 1)) + 1) / 2);
}

std::uint64_t SamplePermutation::encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const PhiloxBlock block =
        philox(key_, {static_cast<std::uint32_t>(right), kStream + round, static_cast<std::uint32_t>(pass_),
                      static_cast<std::uint32_t>(pass_ >> 32)});
    const std::uint64_t next = left ^ (block[0] & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

std::uint64_t SamplePermutation::operator()(std::uint64_t i) const {
  KINTSUGI_ASSERT(i < count_);
  // A bijection of the larger domain returns to [0, n) on every cycle that starts there, so this ends.
  std::uint64_t value = encrypt(i);
  while (value >= count_) value = encrypt(value);
  return value;
}

}  // namespace kintsugi
