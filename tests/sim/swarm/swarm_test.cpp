#include "sim/swarm/swarm.hpp"

#include <gtest/gtest.h>

namespace kintsugi::sim::protocol {
namespace {

TEST(Swarm, keeps_every_rule_and_most_jobs_finish) {
  SwarmOptions options;
  options.runs = 1'000;
  options.seed = 500'000;
  const Result<SwarmOutcome> outcome = run_swarm(options);
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->failures.empty()) << to_string(*outcome);
  EXPECT_EQ(outcome->runs, 1'000U);
  EXPECT_EQ(outcome->repeated, 50U);
  EXPECT_GT(outcome->faults, 1'000U);
  EXPECT_GT(outcome->finished, 900U);
}

TEST(Swarm, of_no_runs_is_refused) {
  SwarmOptions options;
  const Result<SwarmOutcome> outcome = run_swarm(options);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().action, ErrorAction::tell_user);
}

TEST(SwarmScenario, is_a_function_of_its_seed_and_its_run_of_the_scenario) {
  for (std::uint64_t seed = 1; seed < 40; ++seed) {
    EXPECT_EQ(to_string(draw_scenario(seed)), to_string(draw_scenario(seed)));
    const RunReport once = run_scenario(draw_scenario(seed)).report, again = run_scenario(draw_scenario(seed)).report;
    EXPECT_EQ(once.hash, again.hash) << "seed " << seed;
    EXPECT_EQ(once.events, again.events) << "seed " << seed;
  }
  EXPECT_NE(run_scenario(draw_scenario(1)).report.hash, run_scenario(draw_scenario(2)).report.hash);
}

// A job that cannot be finished: nobody is left with its only copies.
TEST(SwarmScenario, shrinks_to_the_faults_that_it_takes) {
  SwarmScenario scenario;
  scenario.shape.slots = {1, 1};
  scenario.shape.step_budget = seconds(2);
  scenario.heal = Instant{} + seconds(5);
  scenario.faults = {{.kind = FaultKind::slow_rank, .at = Instant{} + milliseconds(100), .span = milliseconds(10)},
                     {.kind = FaultKind::stop_rank, .at = Instant{} + milliseconds(110), .span = milliseconds(20)}};
  EXPECT_FALSE(run_scenario(scenario).violation);
  EXPECT_EQ(shrink(scenario).faults.size(), 2U) << "what does not fail is not shrunk";
}

}  // namespace
}  // namespace kintsugi::sim::protocol
