// What the three all-reduce benchmarks have in common, so that they measure the same: sizes, repetitions, output.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "base/clock.hpp"

namespace kintsugi::bench {

constexpr std::size_t kSizes[] = {4U << 10, 64U << 10, 256U << 10, 1U << 20, 4U << 20, 16U << 20, 64U << 20};
constexpr std::size_t kLargest = 64U << 20;

// Enough that a median means something, few enough that 64 MiB takes about a second.
inline int repetitions(std::size_t bytes) {
  return bytes <= (1U << 20) ? 200 : bytes <= (4U << 20) ? 100 : 20;
}

// Calls `round` (one all-reduce at every rank) back to back and prints {"bytes", "us": [...]} at the first rank.
template <class Round>
void measure(std::size_t bytes, bool is_first_rank, Round round) {
  const SteadyClock clock;
  std::vector<double> us;
  for (int i = 0; i < 3; ++i) round();
  for (int i = 0; i < repetitions(bytes); ++i) {
    const Instant before = clock.now();
    round();
    us.push_back(static_cast<double>((clock.now() - before).ns) * 1e-3);
  }
  if (!is_first_rank) return;
  std::printf("{\"bytes\": %zu, \"us\": [", bytes);
  for (std::size_t i = 0; i < us.size(); ++i) std::printf("%s%.1f", i == 0 ? "" : ", ", us[i]);
  std::printf("]}\n");
  std::fflush(stdout);
}

}  // namespace kintsugi::bench
