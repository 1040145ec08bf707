#include "engine/control/job_machine.hpp"

#include "tests/engine/control/job_case.hpp"

namespace kintsugi {
namespace {

using namespace job_event;  // NOLINT(google-build-using-namespace)
namespace effect = job_effect;
using testing::job_request;

class JobLife : public testing::JobCase {};

TEST_F(JobLife, waits_for_slots_then_deals_ranks_to_nodes_in_order) {
  join(7, "a", 2);
  EXPECT_EQ(said<effect::StartRanks>(), nullptr);
  join(9, "b", 3);
  ASSERT_NE(said<effect::StartRanks>(), nullptr);
  EXPECT_EQ(said<effect::StartRanks>()->ranks, (std::vector<PlanRank>{{{0}, {7}}, {{1}, {7}}, {{2}, {9}}, {{3}, {9}}}));
}

TEST_F(JobLife, the_first_generation_is_fenced_like_any_other_and_has_no_state_to_hand_over) {
  join(7, "a", 2);
  join(9, "b", 2);
  all_up();
  ASSERT_NE(said<effect::Fence>(), nullptr);
  EXPECT_EQ(said<effect::Fence>()->generation, (Generation{1, 1}));
  answer_fence();
  ASSERT_NE(said<effect::Prepare>(), nullptr);
  EXPECT_FALSE(said<effect::Prepare>()->transition);
  EXPECT_EQ(said<effect::Prepare>()->plan.generation, (Generation{1, 1}));
}

TEST_F(JobLife, a_whole_life_ends_with_code_0_after_every_process_is_gone) {
  run();
  EXPECT_NE(said<effect::Resume>(), nullptr);
  commit();
  EXPECT_NE(said<effect::Report>(), nullptr);
  EXPECT_EQ(said<effect::Incident>(), nullptr);
  finish_all();
  EXPECT_NE(said<effect::Stop>(), nullptr);
  EXPECT_EQ(said<effect::Ended>(), nullptr);
  all_down();
  ASSERT_NE(said<effect::Ended>(), nullptr);
  EXPECT_EQ(said<effect::Ended>()->exit_code, 0);
}

TEST_F(JobLife, a_rank_that_dies_while_it_starts_is_replaced_under_a_new_number) {
  join(7, "a", 2);
  join(9, "b", 2);
  rank_up(0);
  kill(2);
  ASSERT_NE(said<effect::StartRanks>(), nullptr);
  EXPECT_EQ(said<effect::StartRanks>()->ranks, (std::vector<PlanRank>{{{4}, {9}}}));
  all_up();
  EXPECT_EQ(machine.phase(), JobPhase::fencing);
}

TEST_F(JobLife, ranks_that_die_again_and_again_while_they_start_end_the_job_and_the_last_is_named) {
  join(7, "a", 4);
  for (std::uint32_t r = 0; r < 4; ++r) kill(r);
  for (std::uint32_t r = 4; r < 12; ++r) {
    EXPECT_EQ(machine.phase(), JobPhase::starting);
    kill(r, "exited with code 127");
  }
  ASSERT_NE(said<effect::Ended>(), nullptr);
  EXPECT_EQ(said<effect::Ended>()->exit_code, 1);
  EXPECT_EQ(said<effect::Ended>()->message.find("rank 11 on node a exited with code 127"), 0U);
}

TEST_F(JobLife, ranks_on_a_node_that_joins_late_have_as_long_to_start_as_the_first_had) {
  join(7, "a", 2);
  join(9, "b", 2);
  rank_up(0);
  rank_up(1);
  rank_up(2);
  lose_node(9);
  now = now + machine.request().deadlines.starting - milliseconds(1);
  join(11, "c", 2);
  ASSERT_NE(said<effect::StartRanks>(), nullptr);
  ASSERT_NE(said<effect::ArmDeadline>(), nullptr);
  EXPECT_EQ(said<effect::ArmDeadline>()->at, now + machine.request().deadlines.starting);
}

TEST_F(JobLife, the_deadlines_of_waiting_and_starting_end_the_job) {
  join(7, "a", 2);
  feed(DeadlinePassed{deadline});
  ASSERT_NE(said<effect::Ended>(), nullptr);
  EXPECT_EQ(said<effect::Ended>()->exit_code, 3);

  machine = JobMachine(job_request(2));
  last = machine.start(now);
  join(7, "a", 2);
  rank_up(0);
  feed(DeadlinePassed{deadline});
  ASSERT_NE(said<effect::Stop>(), nullptr);
  EXPECT_EQ(said<effect::Stop>()->why, "no hello in time from rank 1 on node a");
}

TEST_F(JobLife, a_process_that_does_not_stop_in_time_is_named_and_does_not_keep_the_job_alive) {
  run();
  finish_all();
  const std::uint64_t stopping = deadline;
  feed(DeadlinePassed{stopping - 1});
  EXPECT_TRUE(last.empty());
  for (std::uint32_t r = 0; r < 3; ++r) feed(RankDown{{r}, "exited with code 0", true});
  feed(DeadlinePassed{stopping});
  ASSERT_NE(said<effect::Ended>(), nullptr);
  EXPECT_EQ(said<effect::Ended>()->exit_code, 1);
  EXPECT_EQ(said<effect::Ended>()->message, "these processes did not end in time: rank 3 on node b");
}

TEST_F(JobLife, ranks_with_another_kernel_variant_are_refused_at_the_start) {
  join(7, "a", 2);
  join(9, "b", 2);
  rank_up(0, "cpu avx512");
  rank_up(1, "cpu avx2");
  ASSERT_NE(said<effect::Stop>(), nullptr);
  EXPECT_EQ(said<effect::Stop>()->why.find("rank 1 on node a computes with kernel variant 'cpu avx2'"), 0U);
}

TEST_F(JobLife, cancel_ends_with_its_own_exit_code_in_every_phase) {
  for (int phase = 0; phase < 5; ++phase) {
    machine = JobMachine(job_request(4));
    last = machine.start(now);
    if (phase > 0) join(7, "a", 4);
    if (phase > 1) all_up();
    if (phase > 2) answer_fence();
    if (phase > 3) prepare_all();
    feed(Cancel{"interrupted", 130});
    if (phase > 0) {
      all_down();
    }
    ASSERT_NE(said<effect::Ended>(), nullptr) << phase;
    EXPECT_EQ(said<effect::Ended>()->exit_code, 130);
    starting.clear(), node_of.clear(), up.clear(), nodes.clear();
  }
}

TEST_F(JobLife, what_cannot_be_prepared_the_first_time_is_the_users_to_mend_and_later_the_jobs_failure) {
  const Error error{ErrorAction::tell_user, "data.train: no such file"};
  run();
  feed(RankFailed{{2}, machine.generation(), error});
  all_down();
  EXPECT_EQ(said<effect::Ended>()->exit_code, 1);

  machine = JobMachine(job_request(4));
  starting.clear(), node_of.clear(), up.clear(), nodes.clear();
  last = machine.start(now);
  join(7, "a", 4);
  all_up();
  answer_fence();
  feed(RankFailed{{2}, machine.generation(), error});
  all_down();
  EXPECT_EQ(said<effect::Ended>()->exit_code, 2);
  EXPECT_EQ(said<effect::Ended>()->message, "rank 2 on node a: data.train: no such file");
}

TEST_F(JobLife, stale_and_foreign_events_change_nothing_and_are_counted) {
  run();
  const JobMachine before = machine;
  DecisionRecord foreign = record(1);
  foreign.generation = {1, 2};
  feed(StepFinal{foreign});
  feed(RankPrepared{{0}, {1, 1}, machine.plan()->digest(), {0}});
  feed(RankReported{{1, 1}, report_of({0})});
  feed(NodeReported{{7}, {1, 1}, {}});
  feed(RankFailed{{0}, {1, 0}, {ErrorAction::end_generation, "late"}});
  feed(RankFinished{{0}, {1, 0}, {1}, {}});
  feed(RankFinished{{17}, {1, 1}, {1}, {}});
  feed(RankDown{{17}, "was never there"});
  feed(NodeLost{{17}, "was never there"});
  feed(SaveCommitted{Result<void>()});
  EXPECT_EQ(machine.dropped(), before.dropped() + 10);
  EXPECT_EQ(machine.phase(), JobPhase::running);
  EXPECT_EQ(machine.final_step().value, 0U);
}

class SavingJob : public testing::JobCase {
 protected:
  SavingJob() : JobCase(job_request(4, true)) {}
  void save_all_but(std::uint32_t left_out) {
    const std::set<RankId> all = members();
    for (const RankId r : all) {
      if (r.value != left_out) feed(RankSaved{r, machine.generation()});
    }
  }
};

TEST_F(SavingJob, a_save_is_committed_once_every_rank_has_written_and_its_failure_fails_the_job) {
  run();
  finish_all();
  EXPECT_NE(said<effect::Save>(), nullptr);
  save_all_but(3);
  EXPECT_EQ(said<effect::CommitSave>(), nullptr);
  feed(RankSaved{{3}, machine.generation()});
  EXPECT_NE(said<effect::CommitSave>(), nullptr);
  feed(SaveCommitted{Error{ErrorAction::tell_user, "cannot rename to /out: No space left on device"}});
  all_down();
  EXPECT_EQ(said<effect::Ended>()->exit_code, 1);
  EXPECT_EQ(said<effect::Ended>()->message, "cannot rename to /out: No space left on device");
}

TEST_F(SavingJob, a_fault_while_saving_makes_the_generation_anew_and_saves_again) {
  run();
  commit();
  finish_all();
  feed(RankSaved{{1}, machine.generation()});
  kill(2);
  EXPECT_EQ(machine.phase(), JobPhase::fencing);
  change();
  feed(RankFinished{{0}, {1, 1}, step, {5, 5}});  // of the generation before
  EXPECT_EQ(machine.phase(), JobPhase::running);
  finish_all();
  ASSERT_NE(said<effect::Save>(), nullptr);
  EXPECT_NE(said<effect::Incident>(), nullptr);
  save_all_but(99);
  EXPECT_NE(said<effect::CommitSave>(), nullptr);
  kill(3);  // what is left to do is no rank's
  EXPECT_EQ(machine.phase(), JobPhase::saving);
  feed(SaveCommitted{Result<void>()});
  all_down();
  EXPECT_EQ(said<effect::Ended>()->exit_code, 0);
}

TEST_F(SavingJob, an_end_with_another_digest_than_before_is_not_saved) {
  run();
  finish_all();
  kill(2);
  change();
  feed(RankFinished{{0}, machine.generation(), step, {5, 6}});
  ASSERT_NE(said<effect::Stop>(), nullptr);
  EXPECT_NE(said<effect::Stop>()->why.find("corrupt"), std::string::npos);
}

}  // namespace
}  // namespace kintsugi
