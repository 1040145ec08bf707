#include "base/result.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace kintsugi {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return Error{ErrorAction::tell_user, std::to_string(n) + " is odd"};
  return n / 2;
}

Result<int> quarter(int n) {
  KINTSUGI_TRY_ASSIGN(const int once, half(n));
  KINTSUGI_TRY_ASSIGN(const int twice, half(once));
  return twice;
}

Result<void> divisible_by_four(int n) {
  KINTSUGI_TRY(quarter(n));
  return {};
}

TEST(Result, holds_the_value_or_the_error_and_says_which) {
  const Result<int> fine = half(8);
  ASSERT_TRUE(fine.ok());
  EXPECT_EQ(*fine, 4);
  const Result<int> odd = half(7);
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().action, ErrorAction::tell_user);
  EXPECT_EQ(odd.error().message, "7 is odd");
}

TEST(Result, try_hands_the_first_error_up_unchanged) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(6).error().message, "3 is odd");
  EXPECT_TRUE(divisible_by_four(8).ok());
  EXPECT_EQ(divisible_by_four(9).error().message, "9 is odd");
}

TEST(Result, carries_what_can_only_be_moved) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = std::move(made).value();
  EXPECT_EQ(*taken, 5);
}

TEST(ResultDeathTest, asking_for_what_is_not_there_is_a_bug) {
  EXPECT_DEATH(half(7).value(), "value\\(\\) of a failed Result");
  EXPECT_DEATH((void)half(8).error(), "error\\(\\) of a Result that holds a value");
  EXPECT_DEATH((void)Result<void>().error(), "error\\(\\) of a Result that is fine");
}

TEST(Result, every_action_has_a_name_of_its_own) {
  EXPECT_STREQ(to_string(ErrorAction::retry), "retry");
  EXPECT_STREQ(to_string(ErrorAction::fail_link), "fail_link");
  EXPECT_STREQ(to_string(ErrorAction::end_generation), "end_generation");
  EXPECT_STREQ(to_string(ErrorAction::restart_process), "restart_process");
  EXPECT_STREQ(to_string(ErrorAction::tell_user), "tell_user");
  EXPECT_STREQ(to_string(ErrorAction::refuse), "refuse");
  EXPECT_STREQ(to_string(ErrorAction::cancelled), "cancelled");
}

}  // namespace
}  // namespace kintsugi
