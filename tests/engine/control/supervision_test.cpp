#include "engine/control/supervision.hpp"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

constexpr SupervisionPolicy kPolicy{
    .budget = 3, .window = seconds(10), .first_pause = milliseconds(10), .longest_pause = milliseconds(30)};

Instant at(std::int64_t s) {
  return Instant{} + seconds(s);
}

Supervision::Restart restart(const Supervision::Remedy& remedy) {
  const auto* r = std::get_if<Supervision::Restart>(&remedy);
  EXPECT_NE(r, nullptr);
  return r == nullptr ? Supervision::Restart{} : *r;
}

TEST(Supervision, a_crash_is_answered_with_the_next_incarnation) {
  Supervision parent(kPolicy);
  const auto first = restart(parent.crashed("stage", "boom", at(0)));
  EXPECT_EQ(first.incarnation, 2U);
  EXPECT_EQ(first.after, milliseconds(10));
  EXPECT_EQ(restart(parent.crashed("stage", "boom", at(1))).incarnation, 3U);
}

TEST(Supervision, pauses_double_up_to_the_longest) {
  Supervision parent(
      {.budget = 9, .window = seconds(10), .first_pause = milliseconds(10), .longest_pause = milliseconds(30)});
  for (const std::int64_t ms : {10, 20, 30, 30}) {
    EXPECT_EQ(restart(parent.crashed("stage", "boom", at(0))).after, milliseconds(ms));
  }
}

TEST(Supervision, a_spent_budget_escalates_and_says_why) {
  Supervision parent(kPolicy);
  for (int i = 0; i < 3; ++i) restart(parent.crashed("stage", "boom", at(i)));
  const Supervision::Remedy fourth = parent.crashed("stage", "no memory", at(3));
  const auto* escalated = std::get_if<Supervision::Escalate>(&fourth);
  ASSERT_NE(escalated, nullptr);
  EXPECT_EQ(escalated->why, "stage crashed again after 3 restarts within 10 s: no memory");
}

TEST(Supervision, what_is_older_than_the_window_costs_nothing) {
  Supervision parent(kPolicy);
  for (int i = 0; i < 3; ++i) restart(parent.crashed("stage", "boom", at(i)));
  // The first of three is out of the window, so there is one to spend, and its pause is that of a third in a row.
  EXPECT_EQ(restart(parent.crashed("stage", "boom", at(10))).after, milliseconds(30));
  EXPECT_TRUE(std::holds_alternative<Supervision::Escalate>(parent.crashed("stage", "boom", at(10))));
  const auto later = restart(parent.crashed("stage", "boom", at(100)));
  EXPECT_EQ(later.after, milliseconds(10));
  EXPECT_EQ(later.incarnation, 6U);  // numbers are never used twice
}

TEST(Supervision, one_childs_crashes_do_not_cost_another) {
  Supervision parent(kPolicy);
  for (int i = 0; i < 3; ++i) restart(parent.crashed("rank_supervisor@1", "boom", at(0)));
  EXPECT_EQ(restart(parent.crashed("rank_supervisor@2", "boom", at(0))).incarnation, 2U);
}

TEST(Supervision, a_revived_child_has_no_new_budget) {
  Supervision parent(kPolicy);
  for (int i = 0; i < 3; ++i) restart(parent.crashed("stage", "boom", at(0)));
  EXPECT_TRUE(std::holds_alternative<Supervision::Escalate>(parent.crashed("stage", "boom", at(1))));
  EXPECT_EQ(parent.revive("stage"), 5U);
  EXPECT_TRUE(std::holds_alternative<Supervision::Escalate>(parent.crashed("stage", "boom", at(2))));
}

TEST(Supervision, a_child_that_ended_is_forgotten) {
  Supervision parent(kPolicy);
  for (int i = 0; i < 3; ++i) restart(parent.crashed("stage", "boom", at(0)));
  parent.ended("stage");
  EXPECT_EQ(restart(parent.crashed("stage", "boom", at(1))).incarnation, 2U);
}

}  // namespace
}  // namespace kintsugi
