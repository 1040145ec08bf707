#include "engine/control/job_machine.hpp"

#include <algorithm>

#include "tests/engine/plan/plan_cases.hpp"

namespace kintsugi {
namespace {

using namespace job_event;  // NOLINT(google-build-using-namespace)
namespace effect = job_effect;

template <class T>
const T* find(const JobEffects& effects) {
  for (const JobEffect& e : effects) {
    if (const T* found = std::get_if<T>(&e)) return found;
  }
  return nullptr;
}

class JobMachineTest : public ::testing::Test {
 protected:
  explicit JobMachineTest(bool save = false)
      : machine({{1}, {1}, {1, 1}, testing::small_job(2, 4, 1), 4, 0, save, JobDeadlines::from_budget(seconds(10))}) {
    last = machine.start(now);
  }

  JobEffects feed(const JobEvent& event) {
    last = machine.step(event, now);
    if (const auto* armed = find<effect::ArmDeadline>(last)) deadline = armed->number;
    return last;
  }
  void join_two_nodes() {
    feed(NodeReady{{7}, "a", 2});
    feed(NodeReady{{9}, "b", 2});
  }
  void up() {
    join_two_nodes();
    for (std::uint32_t r = 0; r < 4; ++r) feed(RankUp{{r}, "cpu"});
  }
  void run() {
    up();
    for (std::uint32_t r = 0; r < 4; ++r) feed(RankPrepared{{r}, {1, 1}, machine.plan()->digest(), {0}});
  }
  DecisionRecord record(std::uint64_t step) const {
    DecisionRecord r{{1}, {1}, {1, 1}, {step}};
    return r;
  }
  void all_down() {
    for (std::uint32_t r = 0; r < 4; ++r) feed(RankDown{{r}, "exited with code 0", true});
  }

  Instant now{1000};
  JobMachine machine;
  JobEffects last;
  std::uint64_t deadline = 1;
};

TEST_F(JobMachineTest, waits_for_slots_then_deals_ranks_to_nodes_in_order) {
  feed(NodeReady{{7}, "a", 2});
  EXPECT_EQ(find<effect::StartRanks>(last), nullptr);
  feed(NodeReady{{9}, "b", 3});
  const auto* start = find<effect::StartRanks>(last);
  ASSERT_NE(start, nullptr);
  EXPECT_EQ(start->rank_nodes, (std::vector<NodeId>{{7}, {7}, {9}, {9}}));
}

TEST_F(JobMachineTest, a_whole_life_ends_with_code_0_after_every_process_is_gone) {
  run();
  EXPECT_NE(find<effect::Resume>(last), nullptr);
  feed(StepFinal{record(1)});
  EXPECT_NE(find<effect::Report>(last), nullptr);
  for (std::uint32_t r = 0; r < 4; ++r) feed(RankFinished{{r}, {1}, {5, 5}});
  EXPECT_NE(find<effect::Stop>(last), nullptr);
  EXPECT_EQ(find<effect::Ended>(last), nullptr);
  all_down();
  ASSERT_NE(find<effect::Ended>(last), nullptr);
  EXPECT_EQ(find<effect::Ended>(last)->exit_code, 0);
}

TEST_F(JobMachineTest, a_dead_rank_ends_the_job_in_every_phase_and_is_named) {
  for (int phase = 0; phase < 3; ++phase) {
    machine = JobMachine(
        {{1}, {1}, {1, 1}, testing::small_job(2, 4, 1), 4, 0, false, JobDeadlines::from_budget(seconds(10))});
    machine.start(now);
    if (phase == 0) join_two_nodes();
    if (phase == 1) up();
    if (phase == 2) run();
    feed(RankDown{{2}, "was killed by signal 9 (Killed)", false});
    EXPECT_NE(find<effect::Stop>(last), nullptr);
    all_down();
    ASSERT_NE(find<effect::Ended>(last), nullptr);
    EXPECT_EQ(find<effect::Ended>(last)->exit_code, 1);
    EXPECT_EQ(find<effect::Ended>(last)->message, "rank 2 on node b was killed by signal 9 (Killed)");
  }
}

TEST_F(JobMachineTest, the_death_of_a_rank_explains_more_than_what_its_peers_say) {
  run();
  feed(RankFailed{{0}, {ErrorAction::end_generation, "the connection to rank 3 is lost"}});
  feed(RankDown{{1}, "exited with code 0", true});
  feed(RankDown{{3}, "was killed by signal 9 (Killed)", false});
  feed(RankDown{{0}, "exited with code 0", true});
  feed(RankDown{{2}, "exited with code 0", true});
  EXPECT_EQ(find<effect::Ended>(last)->message, "rank 3 on node b was killed by signal 9 (Killed)");
}

TEST_F(JobMachineTest, a_lost_node_takes_its_ranks_and_is_named) {
  run();
  feed(NodeLost{{9}, "connection reset"});
  feed(RankDown{{0}, "exited with code 0", true});
  feed(RankDown{{1}, "exited with code 0", true});
  ASSERT_NE(find<effect::Ended>(last), nullptr);
  EXPECT_EQ(find<effect::Ended>(last)->message, "node b is lost: connection reset");
}

TEST_F(JobMachineTest, every_phase_has_a_deadline_that_names_who_is_missing) {
  up();
  for (const std::uint32_t r : {0U, 1U, 3U}) feed(RankPrepared{{r}, {1, 1}, machine.plan()->digest(), {0}});
  feed(DeadlinePassed{deadline});
  EXPECT_EQ(find<effect::Stop>(last)->why, "not prepared in time: rank 2 on node b");
  const std::uint64_t stopping = deadline;
  feed(DeadlinePassed{stopping - 1});
  EXPECT_TRUE(last.empty());
  feed(DeadlinePassed{stopping});
  ASSERT_NE(find<effect::Ended>(last), nullptr);
  EXPECT_EQ(find<effect::Ended>(last)->exit_code, 1);
}

TEST_F(JobMachineTest, waiting_in_vain_for_slots_ends_with_code_3) {
  feed(NodeReady{{7}, "a", 1});
  feed(DeadlinePassed{1});
  ASSERT_NE(find<effect::Ended>(last), nullptr);
  EXPECT_EQ(find<effect::Ended>(last)->exit_code, 3);
}

TEST_F(JobMachineTest, stale_and_foreign_records_change_nothing_and_are_counted) {
  run();
  DecisionRecord foreign = record(1);
  foreign.generation = {1, 2};
  feed(StepFinal{foreign});
  feed(StepFinal{record(2)});
  feed(RankPrepared{{0}, {1, 1}, machine.plan()->digest(), {0}});
  EXPECT_EQ(machine.dropped(), 3U);
  EXPECT_EQ(machine.final_step().value, 0U);
}

TEST_F(JobMachineTest, ranks_with_another_kernel_variant_are_refused) {
  join_two_nodes();
  feed(RankUp{{0}, "cpu avx512"});
  feed(RankUp{{1}, "cpu avx2"});
  ASSERT_NE(find<effect::Stop>(last), nullptr);
  EXPECT_NE(find<effect::Stop>(last)->why.find("rank 1 on node a computes with kernel variant 'cpu avx2'"),
            std::string::npos);
}

TEST_F(JobMachineTest, cancel_ends_with_its_own_exit_code) {
  run();
  feed(Cancel{"interrupted", 130});
  all_down();
  EXPECT_EQ(find<effect::Ended>(last)->exit_code, 130);
}

class SavingJobTest : public JobMachineTest {
 protected:
  SavingJobTest() : JobMachineTest(true) {}
};

TEST_F(SavingJobTest, a_save_is_committed_once_every_rank_has_written_and_its_failure_fails_the_job) {
  run();
  for (std::uint32_t r = 0; r < 4; ++r) feed(RankFinished{{r}, {0}, {5, 5}});
  EXPECT_NE(find<effect::Save>(last), nullptr);
  for (std::uint32_t r = 0; r < 3; ++r) {
    feed(RankSaved{{r}});
    EXPECT_EQ(find<effect::CommitSave>(last), nullptr);
  }
  feed(RankSaved{{3}});
  EXPECT_NE(find<effect::CommitSave>(last), nullptr);
  feed(SaveCommitted{Error{ErrorAction::tell_user, "cannot rename to /out: No space left on device"}});
  all_down();
  EXPECT_EQ(find<effect::Ended>(last)->exit_code, 1);
  EXPECT_EQ(find<effect::Ended>(last)->message, "cannot rename to /out: No space left on device");
}

}  // namespace
}  // namespace kintsugi
