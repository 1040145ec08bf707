#include "engine/data/sample_permutation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace kintsugi {
namespace {

bool is_bijection(const SamplePermutation& order) {
  std::vector<bool> seen(order.count(), false);
  for (std::uint64_t i = 0; i < order.count(); ++i) {
    const std::uint64_t sample = order(i);
    if (sample >= order.count() || seen[sample]) return false;
    seen[sample] = true;
  }
  return true;
}

TEST(SamplePermutation, every_sample_comes_exactly_once_for_each_count_up_to_2000) {
  for (std::uint64_t n = 1; n <= 2000; ++n) ASSERT_TRUE(is_bijection({n, 7, n % 3})) << n;
}

TEST(SamplePermutation, every_sample_comes_exactly_once_around_a_power_of_two) {
  for (const std::uint64_t n : {262'143u, 262'144u, 262'145u}) EXPECT_TRUE(is_bijection({n, 1, 5})) << n;
}

TEST(SamplePermutation, places_of_a_huge_count_stay_inside_and_apart) {
  const std::uint64_t n = (std::uint64_t{1} << 61) + 3;
  const SamplePermutation order(n, 3, 0);
  std::vector<std::uint64_t> samples;
  for (std::uint64_t i = 0; i < 4096; ++i) samples.push_back(order(i * (n / 4096)));
  std::sort(samples.begin(), samples.end());
  EXPECT_LT(samples.back(), n);
  EXPECT_EQ(std::adjacent_find(samples.begin(), samples.end()), samples.end());
}

TEST(SamplePermutation, another_pass_or_seed_is_another_order) {
  const std::uint64_t n = 1000;
  const SamplePermutation base(n, 7, 0);
  for (const SamplePermutation& other :
       {SamplePermutation(n, 7, 1), SamplePermutation(n, 8, 0), SamplePermutation(n, 7, std::uint64_t{1} << 32)}) {
    std::uint64_t same = 0;
    for (std::uint64_t i = 0; i < n; ++i) same += base(i) == other(i);
    EXPECT_LT(same, 10u);  // one fixed place is expected of two random orders
  }
}

// Golden: the order is part of the job; a change of it changes every run. From tests/engine/data/permutation.py.
TEST(SamplePermutation, the_order_is_the_one_of_the_independent_script) {
  const SamplePermutation order(10, 7, 2);
  std::vector<std::uint64_t> samples;
  for (std::uint64_t i = 0; i < 10; ++i) samples.push_back(order(i));
  EXPECT_EQ(samples, (std::vector<std::uint64_t>{3, 2, 7, 4, 8, 1, 0, 5, 6, 9}));
}

// Neighbours in the order must not be neighbours in the file more often than chance makes them.
TEST(SamplePermutation, neighbours_are_spread) {
  const std::uint64_t n = 10'000;
  const SamplePermutation order(n, 11, 0);
  double distance = 0;
  for (std::uint64_t i = 0; i + 1 < n; ++i) {
    distance += std::abs(static_cast<double>(order(i)) - static_cast<double>(order(i + 1)));
  }
  // |a - b| of two independent uniform draws has mean n/3 and deviation n/sqrt(18): 0.24 % of n on the mean of 10^4.
  EXPECT_NEAR(distance / static_cast<double>(n) / static_cast<double>(n), 1.0 / 3.0, 0.012);
}

}  // namespace
}  // namespace kintsugi
