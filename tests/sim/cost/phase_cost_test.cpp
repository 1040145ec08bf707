#include "sim/cost/phase_cost.hpp"

#include <gtest/gtest.h>

#include "tests/sim/small_scenario.hpp"

namespace kintsugi::sim {
namespace {

TEST(PhaseCost, waves_grow_with_the_logarithm_of_the_members) {
  const Scenario s = testing::small("");
  const StepCost step(s);
  const PhaseCost cost(s, step);
  EXPECT_NEAR(cost.wave(32), cost.hop(), 1e-12);
  EXPECT_NEAR(cost.wave(1024), 2 * cost.hop(), 1e-12);
  EXPECT_NEAR(cost.wave(16'384), 3 * cost.hop(), 1e-12);
}

TEST(PhaseCost, a_move_takes_its_bytes_over_the_links_of_a_member) {
  Scenario s = testing::small("");
  s.policy.rebuild = 0;
  const StepCost step(s);
  const PhaseCost cost(s, step);
  const ModelLayout layout(s.workload.model);
  Plan plan;
  for (std::uint32_t r = 0; r < 16; ++r) plan.ranks.push_back({{r}, {r}});
  Transition transition;
  transition.moves = {{{0}, {1}, {0}}, {{1}, {2}, {0}}, {{2}, {3}, {5}, true}};  // both transfers are sent by rank 0
  const double waves = 2 * cost.wave(16);
  const double bytes = 12.0 * static_cast<double>(layout.shard({0}).count + layout.shard({1}).count);
  const double link = 8 * s.cluster.system.rank_bandwidth;
  EXPECT_NEAR(cost.prepare(plan, &transition, layout, 1, false), waves + bytes / link, 1e-9);
  EXPECT_NEAR(cost.prepare(plan, &transition, layout, 3, false), waves + 3 * bytes / link, 1e-9);
  EXPECT_GT(cost.prepare(plan, &transition, layout, 1, true),
            waves + bytes / link + step.weights_of_stage() / link * 0.99);
}

}  // namespace
}  // namespace kintsugi::sim
