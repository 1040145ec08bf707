// Runs that once broke a rule, with the faults that it took.
#include <gtest/gtest.h>

#include "sim/swarm/scenario.hpp"

namespace kintsugi::sim::protocol {
namespace {

Instant at_ms(std::int64_t ms) {
  return Instant{} + milliseconds(ms);
}

RunReport expect_done(const SwarmScenario& scenario) {
  const Verdict verdict = run_scenario(scenario);
  EXPECT_FALSE(verdict.violation) << *verdict.violation << "\n" << to_string(scenario);
  EXPECT_TRUE(verdict.report.outcome.has_value());
  if (verdict.report.outcome) {
    EXPECT_EQ(verdict.report.outcome->exit_code, 0) << verdict.report.outcome->message;
  }
  return verdict.report;
}

// Ends that nodes told a restarted supervisor before the last of them was back were dropped: it waited for a step's deadline.
TEST(Scenario, a_job_that_is_done_while_there_is_no_supervisor_ends_as_soon_as_there_is_one) {
  SwarmScenario scenario;
  scenario.shape.slots = {1, 1, 1};
  scenario.shape.steps = 4;
  scenario.faults = {{.kind = FaultKind::kill_supervisor, .at = at_ms(100), .span = seconds(3)}};
  scenario.heal = at_ms(6'000);
  EXPECT_LT(expect_done(scenario).took, milliseconds(4'500));
}

// The root of most steps left by plan, and its node with what it had said: later steps were dropped as not the next ones.
TEST(Scenario, a_restarted_supervisor_hears_of_steps_though_it_knows_not_all_before_them) {
  SwarmScenario scenario;
  scenario.shape.slots = {2, 2, 1};
  scenario.shape.ranks = 4;
  scenario.shape.steps = 9;
  scenario.shape.blocks = scenario.shape.stages = 2;
  scenario.faults = {{.kind = FaultKind::drain, .at = at_ms(143), .target = 0},
                     {.kind = FaultKind::hang_stage, .at = at_ms(285), .target = 1, .span = milliseconds(1'300)},
                     {.kind = FaultKind::kill_supervisor, .at = at_ms(391), .span = milliseconds(1'886)}};
  scenario.heal = at_ms(10'000);
  EXPECT_EQ(expect_done(scenario).step, Step{9});
}

// The root hung before it could tell of the first step; then the supervisor was lost within a change. The next one knew of no step
// and of no plan, and had state made anew over what was final. (Two failure domains are hurt: the job may say that it is lost.)
TEST(Scenario, the_first_step_is_not_undone_where_only_members_know_of_it) {
  SwarmScenario scenario;
  scenario.shape.seed = 4042198;
  scenario.shape.slots = {2, 3, 2, 2};
  scenario.shape.racks = 2;
  scenario.shape.lanes = 5;
  scenario.shape.steps = 12;
  scenario.shape.schedule = ScheduleKind::gpipe;
  scenario.faults = {
      {.kind = FaultKind::kill_node, .at = Instant{119'406'000}, .target = 843462, .span = milliseconds(304)},
      {.kind = FaultKind::kill_supervisor, .at = Instant{191'418'000}, .target = 572243, .span = milliseconds(113)},
      {.kind = FaultKind::hang_stage, .event = 209, .target = 733972, .span = milliseconds(3'435)},
      {.kind = FaultKind::repeat_data,
       .at = at_ms(952),
       .phase = JobPhase::preparing,
       .after = milliseconds(5),
       .target = 174049}};
  scenario.heal = at_ms(11'860);
  const Verdict verdict = run_scenario(scenario);
  EXPECT_FALSE(verdict.violation) << *verdict.violation;
}

// The newest record was known, and no report had it: the change that followed had nothing new to say.
TEST(Scenario, the_last_steps_are_reported_though_a_rank_died_while_there_was_no_supervisor) {
  SwarmScenario scenario;
  scenario.shape.slots = {1, 3};
  scenario.shape.lanes = 6;
  scenario.shape.steps = 4;
  scenario.faults = {{.kind = FaultKind::kill_supervisor, .at = at_ms(131), .target = 1, .span = milliseconds(3'456)},
                     {.kind = FaultKind::kill_rank, .at = at_ms(154), .target = 3}};
  scenario.heal = at_ms(7'000);
  EXPECT_EQ(expect_done(scenario).step, Step{4});
}

// Drains are forgotten with the supervisor that was asked: those who were to leave, and those started for them, are too many.
TEST(Scenario, a_restarted_supervisor_goes_on_with_more_ranks_than_there_are_cells) {
  SwarmScenario scenario;
  scenario.shape.slots = {3, 2, 1, 3};
  scenario.shape.per_lane = 2;
  scenario.shape.steps = 40;
  scenario.faults = {{.kind = FaultKind::drain, .at = at_ms(150), .target = 1},
                     {.kind = FaultKind::kill_supervisor, .at = at_ms(165), .span = milliseconds(300)},
                     {.kind = FaultKind::kill_rank, .at = at_ms(900), .target = 2}};
  scenario.heal = at_ms(5'000);
  expect_done(scenario);
}

TEST(Scenario, draining_every_node_leaves_as_many_ranks_as_can_work) {
  SwarmScenario scenario;
  scenario.shape.slots = {2, 1, 2, 1};
  scenario.shape.steps = 30;
  for (std::uint64_t n = 0; n < 4; ++n) {
    scenario.faults.push_back(
        {.kind = FaultKind::drain, .at = at_ms(90 + 20 * static_cast<std::int64_t>(n)), .target = n});
  }
  scenario.heal = at_ms(5'000);
  expect_done(scenario);
}

}  // namespace
}  // namespace kintsugi::sim::protocol
