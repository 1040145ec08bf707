// Random draws of a simulated world: a stream is named by (seed, purpose), so that one more draw for one purpose shifts no
// other.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "base/distributions.hpp"

namespace kintsugi::sim {

class Draws : public DrawStream {
 public:
  using DrawStream::DrawStream;  // (seed, purpose)

  // [least, most].
  std::uint64_t between(std::uint64_t least, std::uint64_t most) { return least + below(most - least + 1); }
  Duration between(Duration least, Duration most) {
    return {least.ns + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(most.ns - least.ns) + 1))};
  }
  // True `percent` times in a hundred.
  bool chance(std::uint64_t percent) { return below(100) < percent; }
};

}  // namespace kintsugi::sim
