#include "sim/fleet/fleet.hpp"

#include <gtest/gtest.h>

#include "tests/sim/fleet/kept.hpp"

namespace kintsugi::sim {
namespace {

using testing::run;
using testing::small;

double lost(const FleetOutcome& o, const std::string& cause) {
  const auto found = o.lost.find(cause);
  return found == o.lost.end() ? 0 : found->second.seconds;
}

TEST(Fleet, a_seed_gives_the_hash_that_is_kept) {
  EXPECT_EQ(run(testing::everything()).event_hash, testing::kKeptHash);
}

TEST(Fleet, another_seed_or_parameter_is_another_hash) {
  const Scenario s = testing::everything();
  EXPECT_EQ(run(s, 2).event_hash, run(s, 2).event_hash);
  EXPECT_NE(run(s, 2).event_hash, testing::kKeptHash);
  Scenario slower = s;
  slower.policy.rebuild += 1;
  EXPECT_NE(run(slower).event_hash, testing::kKeptHash);
}

TEST(Fleet, every_second_is_accounted_for) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const FleetOutcome o = run(testing::everything(), seed);
    double sum = o.steps * o.step_seconds;
    for (const auto& [cause, loss] : o.lost) sum += loss.seconds;
    EXPECT_NEAR(sum, o.wall, 1e-3) << seed;
    EXPECT_EQ(o.wall, 2 * 86'400);
  }
}

TEST(Fleet, without_faults_only_the_last_step_is_lost) {
  const FleetOutcome o = run(small(""));
  EXPECT_EQ(o.plans, 1u);
  EXPECT_NEAR(o.goodput_in_job(), 1, 2e-5);
  EXPECT_NEAR(o.goodput(), 16.0 / 18, 2e-5);
}

TEST(Fleet, a_lost_node_costs_its_detection_and_one_change_and_another_lets_the_spare_in) {
  const FleetOutcome o =
      run(small("faults: [{ class: node, at: 1h, target: 3 }]\n"
                "policy: { hang_detection: 20s, rebuild: 7s, process_start: 40s }\n"));
  ASSERT_EQ(o.incidents.size(), 2u);
  EXPECT_EQ(o.incidents[0].machine.kind, "node lost");
  EXPECT_EQ(o.incidents[1].machine.kind, "planned");
  EXPECT_NEAR(lost(o, "node"), 27, 1.5 * o.step_seconds);
  EXPECT_NEAR(lost(o, "planned change"), 7, 1);
  EXPECT_GT(lost(o, "short-handed"), 1);
  EXPECT_LT(lost(o, "short-handed"), 20);
  ASSERT_EQ(o.recovery.size(), 1u);
  EXPECT_NEAR(o.recovery[0], 27, 2 * o.step_seconds);
}

TEST(Fleet, without_a_spare_it_goes_on_short_handed_until_the_repair) {
  const FleetOutcome o =
      run(small("faults: [{ class: node, at: 1h, target: 3 }]\nrepair: { node: 10h }\n", "1d", "spares: 0"));
  // Seven members work the lanes of eight, 16 each: the busiest has 19 of them, of about 17 microbatches with the bubble.
  const double pace = lost(o, "short-handed") / 36'000;
  EXPECT_GT(pace, 0.05);
  EXPECT_LT(pace, 0.2);
  EXPECT_EQ(o.in_service.back().ranks, 128u);
}

TEST(Fleet, a_process_is_noticed_at_once_and_its_node_stays) {
  const FleetOutcome o =
      run(small("faults: [{ class: process, at: 1h, target: 3 }]\npolicy: { rebuild: 7s }\n", "1d", "spares: 0"));
  ASSERT_EQ(o.incidents.size(), 2u);
  EXPECT_EQ(o.incidents[0].machine.kind, "rank lost");
  EXPECT_NEAR(lost(o, "process"), 7, 1.5 * o.step_seconds);
  EXPECT_EQ(o.in_service.back().ranks, 128u);
}

TEST(Fleet, a_link_ends_a_generation_and_nobody_is_lost) {
  const FleetOutcome o = run(small("faults: [{ class: network, at: 1h }]\n"));
  ASSERT_EQ(o.incidents.size(), 1u);
  EXPECT_EQ(o.incidents[0].machine.kind, "work failed");
}

TEST(Fleet, maintenance_loses_no_step_only_two_changes) {
  const FleetOutcome o =
      run(small("faults: [{ class: maintenance, at: 1h, target: 3 }]\nrepair: { maintenance: 1h }\n"));
  EXPECT_EQ(lost(o, "maintenance"), 0);
  EXPECT_GT(lost(o, "planned change"), 1.9);
  EXPECT_LT(lost(o, "planned change"), 5);
}

TEST(Fleet, a_straggler_slows_all_until_it_is_drained) {
  const FleetOutcome o =
      run(small("faults: [{ class: straggler, at: 1h, target: 3, slowdown: 2 }]\n"
                "policy: { straggler_detection: 10m }\n"));
  EXPECT_GT(lost(o, "stragglers"), 250);
  EXPECT_LT(lost(o, "stragglers"), 330);
}

TEST(Fleet, training_goes_on_without_a_supervisor_until_the_orphan_limit) {
  const auto with = [](const char* restart) {
    return run(small("faults: [{ class: supervisor, at: 1h }]\npolicy: { orphan_limit: 10m, supervisor_restart: " +
                     std::string(restart) + " }\n"));
  };
  EXPECT_EQ(lost(with("9m"), "supervisor"), 0);
  const FleetOutcome longer = with("15m");
  EXPECT_NEAR(lost(longer, "supervisor"), 300, longer.step_seconds);
}

TEST(Fleet, a_new_supervisor_adopts_what_trains_without_disturbing_it) {
  const FleetOutcome o = run(small("faults: [{ class: supervisor, at: 1h }]\n"));
  EXPECT_TRUE(o.incidents.empty());
  EXPECT_EQ(o.plans, 1u);
  EXPECT_NEAR(o.goodput_in_job(), 1, 2e-5);
}

TEST(Fleet, a_change_that_the_supervisor_died_in_is_made_by_the_next_one) {
  const FleetOutcome o = run(small("faults: [{ class: process, at: 1h }, { class: supervisor, at: 3630s }]\n"
                                   "policy: { rebuild: 1m, supervisor_restart: 20s }\n"));
  ASSERT_FALSE(o.incidents.empty());
  EXPECT_EQ(o.incidents[0].machine.generation.epoch, 2u);
  // 30 s, the 20 without a supervisor, the 4 for which nodes are waited for, and the change once more.
  EXPECT_NEAR(lost(o, "process"), 30 + 20 + 4 + 60, 1.5 * o.step_seconds + 1);
}

TEST(Fleet, a_fault_waits_for_the_supervisor) {
  const FleetOutcome o =
      run(small("faults: [{ class: supervisor, at: 1h }, { class: process, at: 3601s }]\n"
                "policy: { supervisor_restart: 2m }\n"));
  EXPECT_NEAR(lost(o, "process"), 120, 3);
}

TEST(Fleet, two_copies_cannot_tell_which_is_corrupt_and_three_can) {
  const auto with = [](const char* replicas) {
    return run(small("faults: [{ class: corruption, at: 3h }]\npolicy: { checkpoint_interval: 30m, replicas: " +
                     std::string(replicas) + " }\n"));
  };
  const FleetOutcome two = with("2"), three = with("3");
  EXPECT_EQ(two.returns, 1u);
  EXPECT_GT(two.steps_lost, 0);
  EXPECT_LE(two.steps_lost * two.step_seconds, 1800);
  EXPECT_EQ(three.returns, 0u);
}

TEST(Fleet, faults_during_recovery_make_it_start_over) {
  const FleetOutcome o =
      run(small("faults: [{ class: process, every: 1h }, { class: process, during_recovery: 0.5 }]\n"
                "policy: { rebuild: 30s }\n"));
  std::uint64_t restarts = 0;
  for (const IncidentOutcome& i : o.incidents) restarts += i.machine.restarts;
  EXPECT_GT(restarts, 5u);
}

TEST(Fleet, a_fault_can_come_at_a_step) {
  const FleetOutcome o = run(small("faults: [{ class: process, at_step: 500 }]\n", "1h"));
  ASSERT_FALSE(o.incidents.empty());
  EXPECT_NEAR(o.incidents[0].struck, 500 * o.step_seconds, 1e-6);
}

TEST(Fleet, spot_nodes_come_and_leave) {
  const FleetOutcome o = run(small("spot: { every: 1h, stay: 5h, notice: 2m, at_most: 4 }\n", "2d", "spares: 0"));
  EXPECT_LT(lost(o, "extra nodes"), -100);
  std::uint64_t most = 0;
  for (const RanksInService& r : o.in_service) most = std::max(most, r.ranks);
  EXPECT_GT(most, 128u);
  EXPECT_LE(most, 160u);
}

}  // namespace
}  // namespace kintsugi::sim
