// What the other policies' models must come to where a closed form is known, and what the published 44 % can be.
#include <gtest/gtest.h>

#include "sim/policy/policy.hpp"
#include "tests/sim/small_scenario.hpp"

namespace kintsugi::sim {
namespace {

using testing::small;

double ettr(const Scenario& s, std::uint64_t seed = 1) {
  return run_restart(s, draw_timeline(s, seed), "restart", s.policy.restart, 1).goodput_in_job();
}

// N r = 1 / every; u = restart + timeout. Within a point where N r (u + dt / 2) is at most a tenth.
TEST(Calibration, stop_and_restart_has_the_expected_effective_training_time) {
  struct Case {
    const char *every, *figures;
    double expected;
  };
  const Case cases[] = {
      {"12h", "{ interval: 30m, write: 5s, restart: 10m, timeout: 1m }", expected_ettr(1.0 / 43'200, 660, 1800, 5)},
      {"3h", "{ interval: 10m, write: 10s, restart: 5m }", expected_ettr(1.0 / 10'800, 300, 600, 10)},
      {"24h", "{ interval: 1h, write: 1m, restart: 30m, timeout: 10m }", expected_ettr(1.0 / 86'400, 2400, 3600, 60)},
  };
  for (const Case& c : cases) {
    const Scenario s = small(
        "faults: [{ class: process, every: " + std::string(c.every) + " }]\npolicy: { restart: " + c.figures + " }\n",
        "3000d", "spares: 0");
    EXPECT_NEAR(ettr(s), c.expected, 0.01) << c.every;
  }
}

// A failure each 18 minutes and 10 minutes of stall, at about 100,000 GPUs, with 44 % of effective training time (arXiv
// 2602.00277). Three conventions give three figures. Only the first, in which the clock of failures runs on through the
// stall and no stall is struck again, gives 44 %; by the other two the same two numbers give 64 % and 57 %. The simulator
// claims no fit beyond that: which convention the paper counts by, it does not say.
TEST(Calibration, ten_minutes_each_eighteen_is_44_percent_when_paid_inside_each_interval) {
  const char* const kFigures = "policy: { restart: { interval: 1s, write: 0, restart: 10m } }\n";
  const Scenario s = small(std::string("faults: [{ class: process, every: 18m, distribution: fixed }]\n") + kFigures,
                           "500d", "spares: 0");
  EXPECT_NEAR(ettr(s), 8.0 / 18, 0.002);
}

TEST(Calibration, on_a_productive_clock_it_is_64_percent) {
  const Scenario s = small(
      "faults: [{ class: process, every: 18m }]\n"
      "policy: { restart: { interval: 1s, write: 0, restart: 10m, clock: productive } }\n",
      "500d", "spares: 0");
  EXPECT_NEAR(ettr(s), 1 / (1 + 10.0 / 18), 0.01);
}

TEST(Calibration, with_poisson_faults_that_strike_stalls_too_it_is_57_percent) {
  const Scenario s = small(
      "faults: [{ class: process, every: 18m }]\n"
      "policy: { restart: { interval: 1s, write: 0, restart: 10m } }\n",
      "500d", "spares: 0");
  EXPECT_NEAR(ettr(s), 0.5738, 0.01);  // e^(-10/18)
}

TEST(Calibration, every_second_of_the_other_policies_is_accounted_for) {
  const Scenario s = small(
      "faults: [{ class: device, every: 2h }, { class: rack, every: 1d }, { class: process, every: 20m }]\n"
      "repair: { device: 8h, rack: 3h }\n");
  const Timeline t = draw_timeline(s, 1);
  for (const Outcome& o : run_other_policies(s, t, 2)) {
    double sum = o.steps * o.step_seconds;
    for (const auto& [cause, loss] : o.lost) sum += loss.seconds;
    EXPECT_NEAR(sum, o.wall, 1e-3) << o.policy;
  }
}

// Eight groups of two nodes; one is away 10 minutes for each fault.
TEST(Calibration, a_group_that_drops_out_costs_a_stall_and_its_share) {
  const Scenario s = small(
      "faults: [{ class: process, every: 100m, distribution: fixed }]\n"
      "policy: { replica_groups: { stall: 1m, rejoin: 10m } }\n",
      "100d", "spares: 0");
  const Outcome o = run_replica_groups(s, draw_timeline(s, 1), s.policy.groups, 1);
  EXPECT_NEAR(o.goodput_in_job(), 1 - 0.01 - 0.09 / 8, 0.001);
}

TEST(Calibration, a_job_without_spares_waits_for_a_repair) {
  const Scenario s = small(
      "faults: [{ class: node, at: 10h, target: 1 }]\nrepair: { node: 5h }\n"
      "policy: { restart: { interval: 1s, write: 0, restart: 10m } }\n",
      "100h", "spares: 0");
  EXPECT_NEAR(ettr(s), 1 - (5 + 1.0 / 6) / 100, 0.001);
}

}  // namespace
}  // namespace kintsugi::sim
