#include "engine/plan/partition.hpp"

#include <gtest/gtest.h>

#include "base/philox.hpp"
#include "tests/engine/plan/planner_reference.hpp"

namespace kintsugi {
namespace {

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : key_(philox_key(seed)) {}
  std::uint32_t below(std::uint64_t n) { return static_cast<std::uint32_t>(philox_u64(key_, drawn_++, 0) % n); }

 private:
  PhiloxKey key_;
  std::uint64_t drawn_ = 0;
};

void expect_as_reference(const std::vector<double>& costs) {
  for (std::uint32_t parts = 1; parts <= costs.size(); ++parts) {
    ASSERT_EQ(balanced_partition(costs, parts), testing::reference_partition(costs, parts))
        << costs.size() << " items in " << parts << " parts";
  }
}

TEST(Partition, of_small_whole_costs_is_that_of_the_definition_ties_and_zeros_too) {
  Draws draws(3);
  for (int round = 0; round < 2'000; ++round) {
    std::vector<double> costs(1 + draws.below(14));
    const std::uint32_t most = 1 + draws.below(6);
    for (double& cost : costs) cost = draws.below(most + 1);
    expect_as_reference(costs);
  }
}

TEST(Partition, of_costs_whose_sums_are_rounded_is_that_of_the_definition) {
  Draws draws(4);
  for (int round = 0; round < 500; ++round) {
    std::vector<double> costs(1 + draws.below(20));
    for (double& cost : costs) cost = (1 + draws.below(1000)) / 7.0 * (draws.below(4) == 0 ? 1e13 : 1e-3);
    expect_as_reference(costs);
  }
}

TEST(Partition, of_a_line_of_cells_is_that_of_the_definition) {
  Draws draws(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> costs;
    const std::uint32_t stages = 1 + draws.below(4), lanes = 1 + draws.below(10);
    for (std::uint32_t s = 0; s < stages; ++s) costs.insert(costs.end(), lanes, (5 + draws.below(4)) * 0.1);
    expect_as_reference(costs);
  }
}

TEST(Partition, of_a_large_cluster_takes_no_time_to_speak_of) {
  std::vector<double> costs;  // 16 stages of 8,192 lanes; seconds even where the work is quadratic once
  for (std::uint32_t s = 0; s < 16; ++s) costs.insert(costs.end(), 8'192, s == 15 ? 9.7e15 : 8e15 + 1e14 * (s % 3));
  for (const std::uint32_t parts : {131'072U, 131'071U, 130'000U, 65'537U, 16'384U, 9'999U, 17U}) {
    const std::vector<std::uint32_t> ends = balanced_partition(costs, parts);
    ASSERT_EQ(ends.size(), parts);
    EXPECT_EQ(ends.back(), costs.size());
  }
}

}  // namespace
}  // namespace kintsugi
