// The gap that a fault leaves is filled while training goes on, and newcomers are let in at a vote.
#include "tests/engine/control/job_case.hpp"

namespace kintsugi {
namespace {

using namespace job_event;  // NOLINT(google-build-using-namespace)
namespace effect = job_effect;
using testing::job_request;

class JobRefill : public testing::JobCase {
 protected:
  using JobCase::JobCase;
  void survive(std::uint32_t rank) {
    kill(rank);
    change();
  }
};

TEST_F(JobRefill, a_free_slot_is_filled_once_training_goes_on_and_the_newcomer_is_let_in_by_a_vote) {
  run();
  survive(2);
  ASSERT_NE(said<effect::StartRanks>(), nullptr);
  EXPECT_EQ(said<effect::StartRanks>()->ranks, (std::vector<PlanRank>{{{4}, {9}}}));
  commit();
  EXPECT_EQ(said<effect::Intend>(), nullptr);
  rank_up(4);
  ASSERT_NE(said<effect::Intend>(), nullptr);
  const Generation next = said<effect::Intend>()->generation;
  EXPECT_EQ(next, (Generation{1, 3}));
  commit();  // not all were ready
  EXPECT_EQ(machine.phase(), JobPhase::running);
  commit(next);
  EXPECT_EQ(machine.phase(), JobPhase::fencing);
  EXPECT_EQ(machine.generation(), next);
  now = {7000};
  change();
  EXPECT_TRUE(members().contains({4}));
  EXPECT_EQ(members().size(), 4U);
  commit();
  ASSERT_NE(said<effect::Incident>(), nullptr);
  EXPECT_EQ(said<effect::Incident>()->report.kind, "planned");
  EXPECT_EQ(said<effect::Incident>()->report.target, "rank 4 on node b");
  EXPECT_EQ(said<effect::Incident>()->report.lanes_recomputed, 0U);
  EXPECT_EQ(said<effect::Incident>()->report.id, 2U);
}

TEST_F(JobRefill, a_fault_before_the_vote_lets_in_whoever_is_up) {
  run();
  survive(2);
  rank_up(4);
  kill(1);
  EXPECT_EQ(machine.generation().counter, 3U);
  change();
  EXPECT_EQ(members(), ranks({0, 3, 4}));
}

TEST_F(JobRefill, a_newcomer_that_comes_up_during_a_change_waits_for_the_next) {
  run();
  survive(2);
  kill(1);
  rank_up(4);
  up.erase({4});
  change();
  EXPECT_EQ(members(), ranks({0, 3}));
  EXPECT_NE(said<effect::StartRanks>(), nullptr);  // for the second gap; both enter together
  rank_up(starting.begin()->first.value);
  EXPECT_NE(said<effect::Intend>(), nullptr);
}

TEST_F(JobRefill, a_newcomer_that_dies_is_forgotten_and_the_next_ones_are_rationed) {
  run();
  survive(2);
  for (std::size_t i = 1; i < kMaxRestarts; ++i) {
    ASSERT_EQ(starting.size(), 1U);
    kill(starting.begin()->first.value);
    ASSERT_EQ(machine.phase(), JobPhase::running);
  }
  kill(starting.begin()->first.value);
  EXPECT_TRUE(starting.empty());
  commit();
  EXPECT_TRUE(starting.empty());
  now = now + kRestartWindow;
  commit();
  EXPECT_EQ(starting.size(), 1U);
  EXPECT_EQ(machine.generation().counter, 2U);
}

TEST_F(JobRefill, a_newcomer_that_says_no_hello_is_given_up) {
  run();
  survive(2);
  now = now + machine.request().deadlines.starting + milliseconds(1);
  commit();
  ASSERT_NE(said<effect::KillRank>(), nullptr);
  EXPECT_EQ(said<effect::KillRank>()->rank, RankId{4});
  EXPECT_EQ(said<effect::StartRanks>(), nullptr);  // its slot is taken until it is down
  kill(4);
  EXPECT_NE(said<effect::StartRanks>(), nullptr);
}

TEST_F(JobRefill, a_newcomer_of_another_kind_is_refused_and_its_node_with_it) {
  run();
  survive(2);
  rank_up(4, "cpu avx2");
  ASSERT_NE(said<effect::KillRank>(), nullptr);
  up.erase({4});
  kill(4);
  EXPECT_EQ(said<effect::StartRanks>(), nullptr);
  EXPECT_EQ(machine.phase(), JobPhase::running);
  join(11, "c", 1);
  ASSERT_NE(said<effect::StartRanks>(), nullptr);
  EXPECT_EQ(said<effect::StartRanks>()->ranks, (std::vector<PlanRank>{{{5}, {11}}}));
}

TEST_F(JobRefill, a_job_that_has_the_ranks_it_asked_for_takes_no_more) {
  run();
  join(11, "c", 2);
  EXPECT_TRUE(last.empty());
}

TEST_F(JobRefill, a_job_that_asked_for_no_number_grows_with_every_node_up_to_its_cells) {
  machine = JobMachine(job_request(0));
  last = machine.start(now);
  join(7, "a", 2);
  all_up();
  change();
  EXPECT_EQ(members().size(), 2U);
  join(9, "b", 5);
  ASSERT_NE(said<effect::StartRanks>(), nullptr);
  EXPECT_EQ(said<effect::StartRanks>()->ranks, (std::vector<PlanRank>{{{2}, {9}}, {{3}, {9}}}));
  rank_up(2);
  EXPECT_EQ(said<effect::Intend>(), nullptr);  // both at once
  rank_up(3);
  ASSERT_NE(said<effect::Intend>(), nullptr);
  commit(said<effect::Intend>()->generation);
  change();
  EXPECT_EQ(members().size(), 4U);
}

TEST_F(JobRefill, nothing_is_started_for_a_job_that_has_no_step_left) {
  JobRequest request = job_request(4);
  request.config.steps = 1;
  machine = JobMachine(request);
  last = machine.start(now);
  run();
  commit();
  survive(2);
  EXPECT_EQ(said<effect::StartRanks>(), nullptr);
}

}  // namespace
}  // namespace kintsugi
