#include "sim/cost/step_cost.hpp"

#include <gtest/gtest.h>

#include "engine/plan/planner.hpp"
#include "sim/fleet/fold.hpp"
#include "tests/sim/small_scenario.hpp"

namespace kintsugi::sim {
namespace {

Plan plan_of(const Scenario& s, std::uint32_t members) {
  const Fold fold = fold_of(s);
  PlanRequest request{{1}, {1}, {1, 1}, {}};
  for (std::uint32_t m = 0; m < members; ++m) request.members.push_back({{m}, {m}});
  return make_plan(request, fold.job, ModelLayout(fold.job.model)).value();
}

// Table 4 of arXiv 2407.21783: 400 TFLOP/s a GPU, 41 % of the peak, on 16,384 GPUs. The scenario's efficiency was chosen for
// this; what the test holds is that model and scenario stay together.
TEST(StepCost, the_step_of_llama_3_405b_has_the_published_utilization) {
  const auto s = load_scenario(std::string(KINTSUGI_SCENARIOS) + "/llama3-405b-54d.yaml");
  ASSERT_TRUE(s);
  const StepCost cost(*s);
  const double step = cost.under(plan_of(*s, 2048)).total();
  const double mfu = cost.flops() / step / (16'384 * s->cluster.system.rank_flops);
  EXPECT_NEAR(mfu, 0.41, 0.01);
  // 6 FLOPs a parameter and token, and attention above that.
  EXPECT_NEAR(cost.flops() / (6 * 405e9 * 16'777'216.0), 1.04, 0.01);
}

TEST(StepCost, the_busiest_member_sets_the_pace) {
  const Scenario s = testing::small("");
  const StepCost cost(s);
  const double full = cost.under(plan_of(s, 16)).compute;
  EXPECT_NEAR(cost.under(plan_of(s, 8)).compute / full, 2, 0.1);
  EXPECT_GT(cost.under(plan_of(s, 15)).compute, full * 1.05);
  EXPECT_NEAR(cost.under(plan_of(s, 16), 3).compute, full * 3, full * 1e-9);
}

TEST(StepCost, a_pipeline_pays_its_bubble_and_interleaving_takes_it_back) {
  Scenario s = testing::small("");
  const Plan plan = plan_of(s, 16);
  const StepParts plain = StepCost(s).under(plan);
  // 16 microbatches a member, two stages: one more microbatch for the bubble.
  EXPECT_NEAR(plain.bubble / plain.compute, 1.0 / 16, 0.01);
  s.workload.interleave = 4;
  EXPECT_NEAR(StepCost(s).under(plan).bubble, plain.bubble / 4, 1e-9);
}

TEST(StepCost, bytes_take_time_in_proportion_to_bandwidth) {
  Scenario s = testing::small("");
  const Plan plan = plan_of(s, 16);
  const StepParts fast = StepCost(s).under(plan);
  s.cluster.system.rank_bandwidth /= 2;
  s.cluster.system.local_bandwidth /= 4;
  const StepParts slow = StepCost(s).under(plan);
  EXPECT_NEAR(slow.data / fast.data, 2, 1e-6);
  EXPECT_NEAR(slow.tensor / fast.tensor, 4, 1e-6);
  EXPECT_EQ(slow.compute, fast.compute);
  s.cluster.pods = 2;
  EXPECT_GT(StepCost(s).under(plan).data, slow.data * 1.1);
}

}  // namespace
}  // namespace kintsugi::sim
