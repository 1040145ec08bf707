// Linked with a job machine that never replaces the lost while training goes on (CMakeLists.txt beside this).
#include <gtest/gtest.h>

#include "tests/sim/fleet/kept.hpp"

namespace kintsugi::sim {
namespace {

TEST(Decision, another_decision_in_the_control_code_is_another_hash) {
  const FleetOutcome other = testing::run(testing::everything());
  EXPECT_NE(other.event_hash, testing::kKeptHash);
  EXPECT_GT(other.lost.at("short-handed").seconds, 10'000);
}

}  // namespace
}  // namespace kintsugi::sim
