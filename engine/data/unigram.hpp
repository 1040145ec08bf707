// Entropy of the distribution of single tokens: what a model that ignores context can reach. A loss below it shows that
// context is used.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

namespace kintsugi {

// -sum p ln p over counts; 0 for no counts.
inline double unigram_entropy_nats(std::span<const std::uint64_t> counts) {
  double total = 0;
  for (const std::uint64_t count : counts) total += static_cast<double>(count);
  double entropy = 0;
  for (const std::uint64_t count : counts) {
    if (count == 0) continue;
    const double p = static_cast<double>(count) / total;
    entropy -= p * std::log(p);
  }
  return entropy;
}

}  // namespace kintsugi
