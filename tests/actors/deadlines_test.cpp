// All limits derive from one budget: whatever waits inside another wait gives up before it.
#include <gtest/gtest.h>

#include "actors/job_frames.hpp"
#include "actors/system.hpp"
#include "engine/control/job_events.hpp"
#include "transport/ucx/ucx_carrier.hpp"

namespace kintsugi::actors {
namespace {

constexpr Duration kDetection = milliseconds(2'000);

// Of a job without work, and of one whose steps take a day.
class Deadlines : public testing::TestWithParam<Duration> {};

TEST_P(Deadlines, inner_ones_end_before_those_around_them) {
  const JobDeadlines d = JobDeadlines::from_budget(GetParam());
  const transport::LinkOptions link = link_options();
  const transport::ucx::UcxCarrier::Config carrier{};
  // A silent peer is known to be lost before anybody's patience is out.
  EXPECT_LT(link.ping_interval, link.ping_deadline);
  EXPECT_LE(link.ping_deadline, kDetection);
  EXPECT_LT(carrier.pulse, carrier.silence);
  EXPECT_LE(carrier.silence, kDetection);
  EXPECT_LT(link.ping_deadline * transport::kMostPatience, d.fencing);
  EXPECT_LT(carrier.first_word, d.fencing);
  // Twice what it takes a node to find a link dead.
  EXPECT_GE(d.adopting, kDetection * 2);
  // A fence waits for an operation in progress, a small part of a step; and memory and state are worth several steps.
  EXPECT_LT(d.fencing, d.step);
  EXPECT_LT(d.step, d.preparing);
  EXPECT_LE(d.preparing, d.saving);
  // A process may load for so long.
  EXPECT_LE(kStartTime, d.starting);
  EXPECT_LE(d.starting, d.waiting);
}

INSTANTIATE_TEST_SUITE_P(budgets, Deadlines, testing::Values(step_budget(JobConfig{}), seconds(24 * 3600)));

}  // namespace
}  // namespace kintsugi::actors
