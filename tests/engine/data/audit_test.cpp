#include "engine/data/audit.hpp"

#include <gmock/gmock.h>

namespace kintsugi {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const BatchConfig kBatch{.sequences = 8, .microbatch = 2, .lanes = 2, .length = 4};

std::vector<Step> steps(std::uint64_t first, std::uint64_t last) {
  std::vector<Step> all;
  for (std::uint64_t s = first; s <= last; ++s) all.push_back({s});
  return all;
}

DataAudit audit(const std::vector<Step>& of, std::uint64_t samples = 20) {
  return audit_steps(of, SampleOrder(samples, kBatch, 5), kBatch, samples);
}

TEST(DataAudit, steps_in_a_row_use_each_sample_once_a_pass) {
  const DataAudit a = audit(steps(1, 10));
  EXPECT_THAT(a.problems, testing::IsEmpty());
  EXPECT_EQ(a.sequences, 80U);
  EXPECT_EQ(a.whole_passes, 4U);
  EXPECT_EQ(a.first_place, 0U);
}

TEST(DataAudit, a_run_that_began_in_the_middle_of_a_pass_counts_whole_ones_only) {
  const DataAudit a = audit(steps(2, 10));
  EXPECT_THAT(a.problems, testing::IsEmpty());
  EXPECT_EQ(a.first_place, 8U);
  EXPECT_EQ(a.whole_passes, 3U);
}

TEST(DataAudit, a_step_that_is_missing_or_there_twice_is_named) {
  EXPECT_THAT(audit({{1}, {2}, {4}}).problems, ElementsAre("step 4 where step 3 should be"));
  EXPECT_THAT(audit({{1}, {2}, {2}}).problems, ElementsAre("step 2 where step 3 should be"));
}

// An order of fewer samples than the dataset has: the one way to see an order that is no permutation.
TEST(DataAudit, a_sample_used_twice_in_a_pass_is_named) {
  const DataAudit a = audit_steps(steps(1, 3), SampleOrder(8, kBatch, 5), kBatch, 20);
  ASSERT_FALSE(a.problems.empty());
  EXPECT_THAT(a.problems.front(), HasSubstr("a second time in pass 1"));
}

TEST(DataAudit, nothing_trained_is_nothing_used) {
  EXPECT_EQ(audit({}).sequences, 0U);
}

}  // namespace
}  // namespace kintsugi
