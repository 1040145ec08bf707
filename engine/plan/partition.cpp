// Parametric search (Megiddo 1983) over greedy cuts from the right. Costs of pieces are differences of prefix sums: rounding
// keeps them monotone in both ends, which is all that is relied on, so that the answer is exact in floating point.
#include "engine/plan/partition.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/assert.hpp"

namespace kintsugi {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Cutter {
 public:
  explicit Cutter(const std::vector<double>& costs) : size_(costs.size()), prefix_(costs.size() + 1, 0.0) {
    KINTSUGI_ASSERT(std::all_of(costs.begin(), costs.end(), [](double c) { return c >= 0; }));
    std::partial_sum(costs.begin(), costs.end(), prefix_.begin() + 1);
  }

  std::vector<std::uint32_t> cut(std::uint32_t parts) {
    std::vector<std::uint32_t> ends;
    std::size_t at = 0;
    double bound = kInfinity;
    while (parts > 0) {
      bound = least_bound(at, parts, bound);
      // As long as what is left cannot be cut more cheaply, its pieces end where those of a cut from the right begin.
      const std::vector<std::size_t> reach = cut_from_right(at, parts, bound);
      const std::vector<std::size_t> below = cut_from_right(at, parts, std::nextafter(bound, -kInfinity));
      do {
        --parts;
        at = std::max(at + 1, reach[parts]);
        ends.push_back(static_cast<std::uint32_t>(at));
      } while (parts > 0 && below[parts] > at);
    }
    KINTSUGI_ASSERT(at == size_);
    return ends;
  }

 private:
  double cost(std::size_t first, std::size_t end) const { return prefix_[end] - prefix_[first]; }

  // The longest piece up to `right` that costs at most `bound` begins here; not before `first`. `guess`: a likely length.
  std::size_t begin_of(std::size_t right, std::size_t first, double bound, std::size_t guess) const {
    std::size_t at = right - std::min(guess, right - first);
    while (at < right && cost(at, right) > bound) ++at;
    while (at > first && cost(at - 1, right) <= bound) --at;
    return at;
  }

  // By number of pieces: where the items that so many pieces of at most `bound` can hold begin, at least `first`.
  std::vector<std::size_t> cut_from_right(std::size_t first, std::uint32_t parts, double bound) const {
    std::vector<std::size_t> begins(parts + 1, first);
    std::size_t at = begins[0] = size_;
    std::size_t length = 1;
    for (std::uint32_t p = 1; p <= parts && at > first; ++p) {
      const std::size_t begin = begin_of(at, first, bound, length);
      length = at - begin;
      at = begins[p] = begin;
    }
    return begins;
  }

  struct Trial {
    bool fits = false;
    double dearest = 0;       // piece, if it fits
    double next = kInfinity;  // no lower bound than this changes the cut, if it does not
  };
  Trial attempt(std::size_t first, std::uint32_t parts, double bound) const {
    Trial trial;
    std::size_t at = size_;
    std::size_t length = 1;
    for (std::uint32_t p = 0; p < parts && at > first; ++p) {
      const std::size_t begin = begin_of(at, first, bound, length);
      trial.dearest = std::max(trial.dearest, cost(begin, at));
      if (begin > first) trial.next = std::min(trial.next, cost(begin - 1, at));
      if (begin == at) return trial;  // one item costs more
      length = at - begin;
      at = begin;
    }
    trial.fits = at == first;
    return trial;
  }

  // The least maximum of items first.. in `parts` pieces; at most `known`.
  double least_bound(std::size_t first, std::uint32_t parts, double known) const {
    const double mean = cost(first, size_) / parts;
    double most = std::min(known, cost(first, size_));  // fits
    double least = 0;                                   // nothing below fits
    // Most often one of the first values above the mean. Where many differ, halving the range of numbers ends it.
    constexpr int kSteps = 8;
    double bound = std::min(most, mean * (1 - 1e-9));
    for (int step = 0; least < most; ++step) {
      const Trial trial = attempt(first, parts, bound);
      if (trial.fits)
        most = trial.dearest;
      else
        least = trial.next;
      bound = !trial.fits && step < kSteps ? least : middle(least, most);
    }
    return most;
  }

  // Of numbers that are not negative: their bits are in their order.
  static double middle(double a, double b) {
    const auto low = std::bit_cast<std::uint64_t>(a), high = std::bit_cast<std::uint64_t>(b);
    return std::bit_cast<double>(low + (high - low) / 2);
  }

  const std::size_t size_;
  std::vector<double> prefix_;
};

}  // namespace

std::vector<std::uint32_t> balanced_partition(const std::vector<double>& costs, std::uint32_t parts) {
  KINTSUGI_ASSERT(parts > 0 && parts <= costs.size());
  return Cutter(costs).cut(parts);
}

}  // namespace kintsugi
