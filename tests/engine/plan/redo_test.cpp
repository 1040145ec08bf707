#include "engine/plan/redo.hpp"

#include <algorithm>

#include "base/philox.hpp"
#include "tests/engine/plan/plan_cases.hpp"

namespace kintsugi {
namespace {

KeptSum kept(std::uint32_t layer, TreeNode node, std::uint32_t rank) {
  return {{{layer}, node}, {rank}};
}

// Embedding, four blocks and a head: two stages of three layers.
class RedoTest : public ::testing::Test {
 protected:
  const Plan plan_ = testing::plan_for(testing::small_job(4, 8, 2), 4);
};

TEST_F(RedoTest, without_sums_a_step_is_whole) {
  const Redo redo(plan_);
  EXPECT_EQ(redo.lanes().size(), 8U);
  EXPECT_TRUE(redo.runs_backward({0}, {7}));
  EXPECT_TRUE(redo.sums({0}, {7}));
}

TEST_F(RedoTest, a_lane_runs_backward_down_to_the_lowest_stage_that_lost_it) {
  std::vector<KeptSum> sums;
  for (std::uint32_t layer = 0; layer < 3; ++layer) sums.push_back(kept(layer, {0, 8}, 1));
  for (std::uint32_t layer = 3; layer < 6; ++layer) sums.push_back(kept(layer, {0, 4}, 2));
  const Redo redo(plan_, sums);
  EXPECT_FALSE(redo.runs_forward({3}));
  EXPECT_FALSE(redo.runs_backward({1}, {3}));
  EXPECT_TRUE(redo.runs_forward({4}));
  EXPECT_TRUE(redo.runs_backward({1}, {4}));
  EXPECT_FALSE(redo.runs_backward({0}, {4}));
  EXPECT_EQ(redo.keeper({0}, {4}), RankId{1});
  EXPECT_TRUE(redo.sums({3}, {4}));
  EXPECT_EQ(redo.lanes(), (std::vector<LaneId>{{4}, {5}, {6}, {7}}));
}

TEST_F(RedoTest, of_sums_that_overlap_the_largest_is_chosen) {
  const std::vector<KeptSum> found{kept(0, {0, 1}, 3), kept(0, {0, 2}, 1), kept(0, {0, 2}, 2), kept(0, {2, 1}, 3)};
  std::vector<KeptSum> all = found;
  for (std::uint32_t layer = 1; layer < 6; ++layer) all.push_back(kept(layer, {0, 4}, 0));
  std::vector<KeptSum> of_layer_0 = choose_sums(plan_, all);
  std::erase_if(of_layer_0, [](const KeptSum& k) { return k.sum.layer.value > 0; });
  EXPECT_EQ(of_layer_0, (std::vector<KeptSum>{kept(0, {0, 2}, 1), kept(0, {2, 1}, 3)}));
}

TEST_F(RedoTest, a_sum_that_backward_gives_anyway_is_left) {
  // Of lane 0 the head is there and nothing else, of lane 1 the first stage.
  std::vector<KeptSum> found{kept(5, {0, 1}, 0)};
  for (std::uint32_t layer = 0; layer < 3; ++layer) found.push_back(kept(layer, {1, 1}, 1));
  const std::vector<KeptSum> chosen = choose_sums(plan_, found);
  EXPECT_EQ(chosen.size(), 3U);
  EXPECT_TRUE(std::all_of(chosen.begin(), chosen.end(), [](const KeptSum& k) { return k.rank == RankId{1}; }));
}

TEST_F(RedoTest, whatever_is_found_the_choice_is_disjoint_and_saves_all_the_work_that_can_be_saved) {
  const PhiloxKey key = philox_key(7);
  std::uint64_t drawn = 0;
  const auto draw = [&](std::uint64_t below) {
    return static_cast<std::uint32_t>(philox_u64(key, drawn++, 0) % below);
  };
  for (int round = 0; round < 500; ++round) {
    std::vector<KeptSum> found;
    std::vector<std::vector<bool>> has(6, std::vector<bool>(plan_.lanes));
    for (std::uint32_t layer = 0; layer < 6; ++layer) {
      for (std::uint32_t lane = 0; lane < plan_.lanes; ++lane) {
        if (draw(4) == 0) continue;
        found.push_back(kept(layer, {lane, 1}, draw(3)));
        has[layer][lane] = true;
      }
    }
    const Redo redo(plan_, choose_sums(plan_, found));  // asserts that they are disjoint
    for (std::uint32_t lane = 0; lane < plan_.lanes; ++lane) {
      std::uint32_t lowest = 0;
      while (lowest < 6 && has[lowest][lane]) ++lowest;
      EXPECT_EQ(redo.runs_forward({lane}), lowest < 6);
      for (std::uint32_t s = 0; s < 2; ++s) {
        EXPECT_EQ(redo.runs_backward({s}, {lane}), lowest < 6 && plan_.stage_of({lowest}).value <= s);
      }
    }
  }
}

}  // namespace
}  // namespace kintsugi
