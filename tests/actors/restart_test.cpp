#include "actors/restart.hpp"

#include <gtest/gtest.h>

namespace kintsugi::actors {
namespace {

constexpr Moment kFormer{Instant{5'000}, 1'000'000};

IncidentReport incident() {
  IncidentReport i;
  i.id = 3;
  i.kind = "rank lost";
  i.target = "rank 2";
  i.why = "it was killed";
  i.generation = {1, 7};
  i.restarts = 1;
  i.detected = Instant{4'000};
  i.fenced = Instant{4'100};
  i.resumed = Instant{4'300};
  i.lanes_recomputed = 5;
  i.bytes_moved = 6;
  i.steps_lost = 7;
  return i;
}

TEST(ReportedBefore, an_incident_is_to_the_successor_what_it_was_to_the_former_supervisor) {
  RestartJob job;
  job.submitted_ns = kFormer.wall_ns - 2'000;
  job.incidents.push_back(incident_entry({4}, incident(), kFormer));
  EXPECT_EQ(job.incidents.front().job, JobId{4});
  const ReportedBefore same = reported_before(job, kFormer);
  EXPECT_EQ(same.began, Instant{3'000});
  ASSERT_EQ(same.incidents.size(), 1U);
  EXPECT_EQ(same.incidents.front(), incident()) << "what never came to pass, too";

  // Another machine, whose clock began elsewhere: all of it moves alike.
  const ReportedBefore elsewhere = reported_before(job, {Instant{90'000}, kFormer.wall_ns + 1'000});
  EXPECT_EQ(elsewhere.incidents.front().detected - elsewhere.began, incident().detected - same.began);
  EXPECT_EQ(elsewhere.began, Instant{87'000});
}

}  // namespace
}  // namespace kintsugi::actors
