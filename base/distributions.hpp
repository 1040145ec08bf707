// Random variables over Philox: how long until the next fault, how long a repair takes. A draw is a pure function of
// (seed, stream, number of the draw), and its bits do not depend on a mathematical library.
#pragma once

#include <cstdint>
#include <vector>

#include "base/philox.hpp"

namespace kintsugi {

// Draws one after the other. Streams of one seed do not overlap.
class DrawStream {
 public:
  DrawStream(std::uint64_t seed, std::uint64_t stream) : key_(philox_key(seed)), stream_(stream) {}

  std::uint64_t bits() { return philox_u64(key_, stream_, drawn_++); }
  // (0, 1): the middle of one of 2^53 equal intervals.
  double unit() { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1.0p-53; }
  double normal() { return standard_normal(bits()); }
  // [0, n); n > 0.
  std::uint64_t below(std::uint64_t n) { return bits() % n; }
  std::uint64_t drawn() const { return drawn_; }

 private:
  PhiloxKey key_;
  std::uint64_t stream_;
  std::uint64_t drawn_ = 0;
};

// A positive random variable with the mean that is given; its unit is the mean's.
struct Distribution {
  enum class Kind : std::uint8_t {
    fixed,        // always the mean
    exponential,  // memoryless
    weibull,      // `shape` below 1: what has just failed fails again soon; above 1: wear
    gamma,        // `shape` below 1: more irregular than exponential; above 1: more regular
    log_normal,   // `shape`: standard deviation of the logarithm
    empirical,    // one of `values`, each as likely; `mean` is not read
  };
  Kind kind = Kind::exponential;
  double mean = 1;
  double shape = 1;
  std::vector<double> values = {};

  double expected() const;
  bool operator==(const Distribution&) const = default;
};

// Weibull, exponential, log-normal and empirical take one draw each, gamma a few (Marsaglia and Tsang, "A simple method
// for generating gamma variables", 2000), fixed none. Asserts that mean and shape are positive.
double draw(const Distribution& distribution, DrawStream& stream);

}  // namespace kintsugi
