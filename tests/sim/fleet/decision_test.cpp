// Linked with control code in which one decision can be changed (CMakeLists.txt beside this).
#include <gtest/gtest.h>

#include "base/mutant.hpp"
#include "tests/sim/fleet/kept.hpp"

namespace kintsugi::sim {
namespace {

TEST(Decision, another_decision_in_the_control_code_is_another_hash) {
  EXPECT_EQ(testing::run(testing::everything()).event_hash, testing::kKeptHash);
  active_mutant() = Mutant::never_replaces_the_lost;
  const FleetOutcome other = testing::run(testing::everything());
  active_mutant() = Mutant::none;
  EXPECT_NE(other.event_hash, testing::kKeptHash);
  EXPECT_GT(other.lost.at("short-handed").seconds, 10'000);
}

}  // namespace
}  // namespace kintsugi::sim
