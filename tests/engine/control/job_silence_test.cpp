// Silence: who does not answer in time is killed, and nobody waits for it twice.
#include "tests/engine/control/job_case.hpp"

namespace kintsugi {
namespace {

using namespace job_event;  // NOLINT(google-build-using-namespace)
namespace effect = job_effect;

class JobSilence : public testing::JobCase {};

TEST_F(JobSilence, who_does_not_answer_a_fence_is_killed_and_one_change_follows_when_all_of_them_are_down) {
  run();
  kill(3);
  feed(RankReported{machine.generation(), report_of({0})});
  feed(NodeReported{{7}, machine.generation(), {}});
  feed(NodeReported{{9}, machine.generation(), {}});
  feed(DeadlinePassed{deadline});
  std::set<RankId> killed;
  for (const JobEffect& e : last) {
    if (const auto* k = std::get_if<effect::KillRank>(&e)) killed.insert(k->rank);
  }
  EXPECT_EQ(killed, ranks({1, 2}));
  kill(1);
  EXPECT_EQ(machine.generation().counter, 2U);
  kill(2);
  EXPECT_EQ(machine.generation().counter, 3U);
  change();
  EXPECT_EQ(members(), ranks({0}));
}

TEST_F(JobSilence, who_is_not_seen_to_die_is_gone_at_the_next_deadline) {
  run();
  kill(3);
  up.erase({1});
  answer_fence();
  feed(DeadlinePassed{deadline});
  EXPECT_EQ(machine.generation().counter, 2U);
  feed(DeadlinePassed{deadline});
  EXPECT_EQ(machine.generation().counter, 3U);
  change();
  EXPECT_EQ(members(), ranks({0, 2}));
  feed(RankDown{{1}, "was killed by signal 9 (Killed)"});  // at last: its slot is free now
  EXPECT_EQ(machine.phase(), JobPhase::running);
  EXPECT_NE(said<effect::StartRanks>(), nullptr);
}

TEST_F(JobSilence, a_node_that_does_not_answer_two_deadlines_long_is_lost) {
  run();
  kill(3);
  nodes.erase({9});
  answer_fence();
  feed(DeadlinePassed{deadline});
  feed(DeadlinePassed{deadline});
  EXPECT_EQ(machine.generation().counter, 3U);
  up.erase({2});
  change();
  EXPECT_EQ(members(), ranks({0, 1}));
}

TEST_F(JobSilence, who_is_not_prepared_in_time_is_killed_and_the_others_go_on) {
  run();
  kill(3);
  answer_fence();
  const Plan plan = *machine.plan();
  feed(RankPrepared{{0}, machine.generation(), plan.digest(), step});
  feed(RankPrepared{{2}, machine.generation(), plan.digest(), step});
  feed(DeadlinePassed{deadline});
  ASSERT_NE(said<effect::KillRank>(), nullptr);
  EXPECT_EQ(said<effect::KillRank>()->rank, RankId{1});
  kill(1);
  change();
  EXPECT_EQ(members(), ranks({0, 2}));
}

TEST_F(JobSilence, an_answer_of_a_rank_that_was_told_to_die_no_longer_counts) {
  run();
  kill(3);
  const std::uint32_t generation = machine.generation().counter;
  for (const NodeId node : nodes) feed(NodeReported{node, {1, generation}, {}});
  feed(RankReported{{1, generation}, report_of({0})});
  feed(RankReported{{1, generation}, report_of({1})});
  feed(DeadlinePassed{deadline});
  feed(RankReported{{1, generation}, report_of({2})});
  EXPECT_EQ(machine.phase(), JobPhase::fencing);
  EXPECT_EQ(machine.dropped(), 1U);
  kill(2);
  change();
  EXPECT_EQ(members(), ranks({0, 1}));
}

TEST_F(JobSilence, shards_are_not_given_up_while_a_process_that_may_hold_them_was_not_seen_to_end) {
  run();
  commit();
  kill(0);
  left_behind.clear();
  const RankReport held = report_of({2});
  up.erase({2});
  answer_fence();
  feed(DeadlinePassed{deadline});
  feed(DeadlinePassed{deadline});  // rank 2 is gone, and was the last to hold what rank 0 held too
  answer_fence();
  EXPECT_EQ(machine.phase(), JobPhase::starting);
  left_behind[{2}] = held;
  feed(RankDown{{2}, "was killed by signal 9 (Killed)"});
  all_up();
  change();
  commit();
}

TEST_F(JobSilence, when_nobody_lives_training_goes_on_with_the_new_ranks_that_come_up_in_time) {
  run();
  commit();
  for (std::uint32_t r = 0; r < 4; ++r) kill(r);
  rank_up(4);
  rank_up(6);
  starting.clear();
  feed(DeadlinePassed{deadline});
  ASSERT_NE(said<effect::KillRank>(), nullptr);
  change();
  EXPECT_EQ(members(), ranks({4, 6}));
}

TEST_F(JobSilence, a_step_that_makes_no_progress_is_tried_again_by_who_answers) {
  run();
  feed(DeadlinePassed{deadline});
  ASSERT_NE(said<effect::Fence>(), nullptr);
  EXPECT_EQ(said<effect::Fence>()->why, "step 1 was not reached in time");
  change();
  EXPECT_EQ(members(), ranks({0, 1, 2, 3}));
}

}  // namespace
}  // namespace kintsugi
