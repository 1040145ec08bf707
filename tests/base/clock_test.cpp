#include "base/clock.hpp"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

TEST(Clock, durations_and_instants_add_up) {
  const Instant start{1'000};
  EXPECT_EQ((start + milliseconds(2)) - start, milliseconds(2));
  EXPECT_EQ(start + seconds(1) - seconds(1), start);
  EXPECT_EQ(seconds(1) + milliseconds(500) - milliseconds(250), milliseconds(1'250));
  EXPECT_EQ(milliseconds(250) * 4, seconds(1));
  EXPECT_EQ(milliseconds(1'999).ms(), 1'999);
  EXPECT_DOUBLE_EQ(milliseconds(1'500).seconds(), 1.5);
}

TEST(Clock, no_deadline_is_after_every_instant) {
  EXPECT_LT(SteadyClock().now() + seconds(1'000'000'000), kNoDeadline);
}

TEST(Clock, a_manual_clock_moves_only_when_told) {
  ManualClock clock;
  const Instant start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(milliseconds(3));
  EXPECT_EQ(clock.now() - start, milliseconds(3));
}

TEST(Clock, the_steady_clock_never_goes_back) {
  const SteadyClock clock;
  Instant last = clock.now();
  for (int i = 0; i < 10'000; ++i) {
    const Instant now = clock.now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Clock, the_wall_clock_is_past_2020) {
  EXPECT_GT(wall_clock_ns(), 1'577'836'800'000'000'000);
}

}  // namespace
}  // namespace kintsugi
