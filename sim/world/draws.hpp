// Random draws of a simulated world: a stream is named by (seed, purpose), so that one more draw for one purpose shifts no
// other.
#pragma once

#include <cstdint>

#include "base/assert.hpp"
#include "base/clock.hpp"
#include "base/philox.hpp"

namespace kintsugi::sim {

class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t purpose) : key_(philox_key(seed)), purpose_(purpose) {}

  std::uint64_t bits() { return philox_u64(key_, purpose_, drawn_++); }
  // [0, n); n > 0.
  std::uint64_t below(std::uint64_t n) {
    KINTSUGI_ASSERT(n > 0);
    return bits() % n;
  }
  // [least, most].
  std::uint64_t between(std::uint64_t least, std::uint64_t most) { return least + below(most - least + 1); }
  Duration between(Duration least, Duration most) {
    return {least.ns + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(most.ns - least.ns) + 1))};
  }
  // True `percent` times in a hundred.
  bool chance(std::uint64_t percent) { return below(100) < percent; }

 private:
  const PhiloxKey key_;
  const std::uint64_t purpose_;
  std::uint64_t drawn_ = 0;
};

}  // namespace kintsugi::sim
