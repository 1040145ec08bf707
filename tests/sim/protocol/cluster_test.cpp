#include "sim/protocol/cluster.hpp"

#include <gtest/gtest.h>

namespace kintsugi::sim::protocol {
namespace {

Instant at_ms(std::int64_t ms) {
  return Instant{} + milliseconds(ms);
}

RunReport run(const Shape& shape, std::vector<Fault> faults = {}) {
  Cluster cluster(shape, std::move(faults));
  return cluster.run(at_ms(8'000));
}

void expect_done(const RunReport& report, const Shape& shape) {
  EXPECT_FALSE(report.violation) << *report.violation;
  ASSERT_TRUE(report.outcome.has_value());
  EXPECT_EQ(report.outcome->exit_code, 0) << report.outcome->message;
  EXPECT_EQ(report.step.value, static_cast<std::uint64_t>(shape.steps));
}

// The watch compares every record, copy and the end with the run without a plan.
TEST(Cluster, trains_to_the_oracles_digest_under_every_layout) {
  for (const std::vector<std::uint32_t>& slots : {std::vector<std::uint32_t>{1}, {3}, {1, 1}, {2, 1, 3}}) {
    for (const std::int64_t stages : {1, 2}) {
      for (const ScheduleKind schedule : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b}) {
        Shape shape;
        shape.slots = slots;
        shape.blocks = 2;
        shape.stages = stages;
        shape.lanes = 6;
        shape.per_lane = 2;
        shape.schedule = schedule;
        expect_done(run(shape), shape);
      }
    }
  }
}

TEST(Cluster, a_killed_rank_is_succeeded_in_every_phase_of_a_change) {
  for (const JobPhase phase : {JobPhase::starting, JobPhase::fencing, JobPhase::preparing, JobPhase::running}) {
    Shape shape;
    shape.slots = {2, 2};
    const RunReport report = run(shape, {{.kind = FaultKind::kill_rank, .at = at_ms(70)},
                                         {.kind = FaultKind::kill_rank, .phase = phase, .after = milliseconds(2)}});
    expect_done(report, shape);
    EXPECT_GE(report.faults, 1U);
  }
}

TEST(Cluster, the_supervisor_may_be_lost_before_any_event_and_training_goes_on) {
  Shape shape;
  shape.slots = {2, 1};
  shape.steps = 3;
  const std::uint64_t events = run(shape).events;
  for (std::uint64_t event = 1; event < events; event += 3) {
    const RunReport report =
        run(shape, {{.kind = FaultKind::kill_supervisor, .event = event, .target = event, .span = milliseconds(20)}});
    expect_done(report, shape);
    if (::testing::Test::HasFailure()) FAIL() << "before event " << event;
  }
}

TEST(Cluster, any_one_rank_may_be_lost_before_any_event_without_a_loss_of_state) {
  Shape shape;
  shape.slots = {1, 1, 1};
  shape.steps = 3;
  const std::uint64_t events = run(shape).events;
  for (std::uint64_t event = 1; event < events; event += 2) {
    const RunReport report = run(shape, {{.kind = FaultKind::kill_rank, .event = event, .target = event / 2}});
    expect_done(report, shape);
    if (::testing::Test::HasFailure()) FAIL() << "before event " << event;
  }
}

}  // namespace
}  // namespace kintsugi::sim::protocol
