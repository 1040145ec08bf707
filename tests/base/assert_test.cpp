#include "base/assert.hpp"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

TEST(AssertDeathTest, a_broken_rule_ends_the_process_and_says_where_and_which) {
  EXPECT_DEATH(KINTSUGI_ASSERT(1 + 1 == 3), "assertion failed at .*assert_test.cpp:[0-9]+: 1 \\+ 1 == 3");
  EXPECT_DEATH(KINTSUGI_ASSERT_MSG(false, "sums are exact"), "false: sums are exact");
  EXPECT_DEATH(KINTSUGI_UNREACHABLE(), "unreachable");
}

TEST(Assert, the_condition_is_evaluated_once_in_every_build) {
  int evaluated = 0;
  KINTSUGI_ASSERT(++evaluated > 0);
  EXPECT_EQ(evaluated, 1);
}

}  // namespace
}  // namespace kintsugi
