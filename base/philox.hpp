// Counter-based randomness: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). A draw is a pure function of (key, counter): there is nothing to save or restore, and an extra draw
// somewhere shifts nothing anywhere else.
#pragma once

#include <array>
#include <cstdint>

namespace kintsugi {

struct PhiloxKey {
  std::uint32_t k0 = 0;
  std::uint32_t k1 = 0;
};

constexpr PhiloxKey philox_key(std::uint64_t seed) {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}

using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox(PhiloxKey key, PhiloxBlock counter) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key.k0, static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key.k1, static_cast<std::uint32_t>(p0)};
    key.k0 += 0x9E3779B9u;
    key.k1 += 0xBB67AE85u;
  }
  return counter;
}

// 64 random bits for (key, two 64-bit counters).
constexpr std::uint64_t philox_u64(PhiloxKey key, std::uint64_t a, std::uint64_t b) {
  const PhiloxBlock r = philox(key, {static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32),
                                     static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(b >> 32)});
  return (std::uint64_t{r[1]} << 32) | r[0];
}

// [0, 1) with 53 bits.
constexpr double unit_interval(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

// Standard normal deviate from 64 random bits: the inverse of the normal distribution function (Wichura, algorithm
// AS 241, 1988), evaluated with + - * / and sqrt and a logarithm of our own, so that it is the same on every machine
// and with every compiler.
double standard_normal(std::uint64_t bits);

}  // namespace kintsugi
