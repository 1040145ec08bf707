// A restarted supervisor's machine: it finds the job that the former one ran.
#include <gtest/gtest.h>

#include "tests/engine/control/job_case.hpp"

namespace kintsugi::testing {
namespace {

namespace effect = job_effect;

// Two nodes, a (7) and b (9), with two ranks each, trained for three steps by the supervisor of epoch 1, which is lost.
class Adoption : public JobCase {
 protected:
  void SetUp() override {
    run();
    for (int i = 0; i < 3; ++i) commit();
  }

  void restart(std::optional<Generation> promised = std::nullopt) {
    former = resumed;
    JobRequest request = job_request(asked);
    request.epoch = epoch;
    const kintsugi::Adoption known_to_it{promised.value_or(machine.generation()),
                                         machine.next_rank().value,
                                         machine.incidents(),
                                         paused,
                                         {0},
                                         journaled,
                                         {{{7}, "a"}, {{9}, "b"}}};
    machine = JobMachine(request);
    last = machine.adopt(known_to_it, now);
    deadline = find<effect::ArmDeadline>(last)->number;
  }
  void come_back(std::uint32_t node, bool in_force = true) {
    const NodeId id{node};
    nodes.insert(id);
    feed(job_event::NodeReady{id, node == 7 ? "a" : "b", 2, "", true});
    job_event::NodeRestated restated{id, former->generation, {}, {}, {}, node == 7 ? known : std::nullopt};
    if (in_force) restated.in_force = former;
    for (const RankId rank : up) {
      if (node_of[rank] == id) restated.living.push_back({rank, "cpu"});
    }
    for (const auto& [rank, report] : left_behind) {
      if (report.node == id) restated.gone.push_back(rank);
    }
    feed(restated);
  }
  // Known to the ranks, not to the supervisor that comes.
  void die_without_a_supervisor(std::uint32_t rank) {
    up.erase({rank});
    left_behind[{rank}] = report_of({rank});
  }

  std::optional<Plan> former;
  std::optional<DecisionRecord> journaled;
  bool paused = false;
  std::uint32_t asked = 4;  // ranks
  std::uint32_t epoch = 2;  // of the supervisor that comes
};

TEST_F(Adoption, whole_membership_goes_on_undisturbed) {
  restart();
  EXPECT_EQ(machine.phase(), JobPhase::adopting);
  come_back(7);
  EXPECT_EQ(machine.phase(), JobPhase::adopting);
  come_back(9);
  EXPECT_EQ(machine.phase(), JobPhase::running);
  EXPECT_EQ(said<effect::Fence>(), nullptr);
  EXPECT_EQ(said<effect::StartRanks>(), nullptr);
  ASSERT_NE(said<effect::Adopted>(), nullptr);
  EXPECT_EQ(said<effect::Adopted>()->plan, *former);
  ASSERT_NE(said<effect::Report>(), nullptr);
  EXPECT_EQ(said<effect::Report>()->record.step, Step{3});
  EXPECT_EQ(machine.generation(), (Generation{1, 1}));
  commit();
  EXPECT_EQ(machine.final_step(), Step{4});
}

TEST_F(Adoption, steps_that_become_final_meanwhile_are_reported_once_it_is_done) {
  restart();
  come_back(7);
  commit();
  EXPECT_EQ(said<effect::Report>(), nullptr);
  come_back(9);
  ASSERT_NE(said<effect::Report>(), nullptr);
  EXPECT_EQ(said<effect::Report>()->record.step, Step{4});
}

TEST_F(Adoption, a_generation_after_it_counts_in_the_new_epoch) {
  restart();
  come_back(7);
  come_back(9);
  kill(3);
  ASSERT_NE(said<effect::Fence>(), nullptr);
  EXPECT_EQ(said<effect::Fence>()->generation, (Generation{2, 1}));
  change();
  EXPECT_EQ(machine.plan()->generation, (Generation{2, 1}));
}

TEST_F(Adoption, a_supervisor_of_the_same_epoch_counts_on) {
  epoch = 1;  // its actor alone was restarted
  restart();
  come_back(7);
  come_back(9);
  EXPECT_EQ(machine.phase(), JobPhase::running);
  EXPECT_EQ(said<effect::Fence>(), nullptr);
  EXPECT_EQ(machine.generation(), (Generation{1, 1}));
  kill(3);
  ASSERT_NE(said<effect::Fence>(), nullptr);
  EXPECT_EQ(said<effect::Fence>()->generation, (Generation{1, 2}));
}

TEST_F(Adoption, a_rank_that_died_meanwhile_is_succeeded_at_once) {
  restart();
  die_without_a_supervisor(2);
  come_back(7);
  come_back(9);
  ASSERT_NE(said<effect::Fence>(), nullptr);
  EXPECT_EQ(said<effect::Fence>()->generation, (Generation{2, 1}));
  EXPECT_NE(said<effect::Fence>()->why.find("rank 2 on node b ended while there was no supervisor"), std::string::npos);
  change();
  EXPECT_EQ(machine.final_step(), Step{3});
  EXPECT_FALSE(members().contains({2}));
}

TEST_F(Adoption, a_node_that_does_not_come_back_in_time_is_succeeded) {
  restart();
  come_back(7);
  up.erase({2});
  up.erase({3});
  feed(job_event::DeadlinePassed{deadline});
  ASSERT_NE(said<effect::Fence>(), nullptr);
  EXPECT_NE(said<effect::Fence>()->why.find("node b did not come back"), std::string::npos);
  change();
  EXPECT_EQ(members(), (std::set<RankId>{{0}, {1}}));
}

TEST_F(Adoption, a_node_that_comes_late_is_let_in_with_the_ranks_it_has) {
  restart();
  come_back(7);
  const std::set<RankId> all = up;
  up = {{0}, {1}};
  feed(job_event::DeadlinePassed{deadline});
  change();
  up = all;
  come_back(9);
  ASSERT_NE(said<effect::Intend>(), nullptr);
  EXPECT_EQ(said<effect::StartRanks>(), nullptr);
  commit(said<effect::Intend>()->generation);
  change();
  EXPECT_EQ(members(), all);
}

TEST_F(Adoption, shards_on_an_absent_node_are_waited_for) {
  restart();
  up = {{2}, {3}};
  for (auto& shard : resumed->shards) shard.replicas.clear();  // one copy each: some lie on node a only
  come_back(9);
  feed(job_event::DeadlinePassed{deadline});
  answer_fence();
  EXPECT_EQ(machine.phase(), JobPhase::starting);
  EXPECT_EQ(said<effect::Stop>(), nullptr);
  up = {{0}, {1}, {2}, {3}};
  come_back(7);
  ASSERT_NE(said<effect::Fence>(), nullptr);
  change();
  EXPECT_EQ(members().size(), 4U);
}

TEST_F(Adoption, a_promise_above_the_plan_in_force_makes_a_new_generation) {
  restart(Generation{1, 2});  // its fence may have reached somebody
  come_back(7);
  come_back(9);
  EXPECT_EQ(machine.phase(), JobPhase::adopting);
  feed(job_event::DeadlinePassed{deadline});
  ASSERT_NE(said<effect::Fence>(), nullptr);
  EXPECT_EQ(said<effect::Fence>()->generation, (Generation{2, 1}));
}

TEST_F(Adoption, a_plan_that_not_all_were_told_to_resume_makes_a_new_generation) {
  restart();
  come_back(7);
  come_back(9, false);
  ASSERT_NE(said<effect::Fence>(), nullptr);
}

TEST_F(Adoption, ranks_that_voted_for_a_change_get_its_fence) {
  const Generation former_generation = machine.generation();
  commit(Generation{1, 2});
  restart(former_generation);
  come_back(7);
  come_back(9);
  ASSERT_NE(said<effect::Fence>(), nullptr);
  EXPECT_EQ(said<effect::Fence>()->generation, (Generation{2, 1}));
}

TEST_F(Adoption, a_journaled_step_that_nobody_holds_ends_the_job) {
  journaled = known;
  restart();
  step = {2};
  known->step = step;
  up.erase({2});
  come_back(7);
  come_back(9);
  answer_fence();
  ASSERT_NE(said<effect::Stop>(), nullptr);
  EXPECT_NE(said<effect::Stop>()->why.find("shards are lost"), std::string::npos);
}

TEST_F(Adoption, nobody_coming_back_ends_the_job_only_after_the_orphan_limit) {
  journaled = known;
  restart();
  EXPECT_GE(find<effect::ArmDeadline>(last)->at - now, seconds(600));
  nodes.clear();
  up.clear();
  feed(job_event::DeadlinePassed{deadline});
  ASSERT_NE(said<effect::Stop>(), nullptr);
  EXPECT_EQ(said<effect::Stop>()->exit_code, 1);
}

TEST_F(Adoption, a_job_of_which_nothing_was_promised_starts_as_if_new) {
  restart(Generation{1, 0});
  EXPECT_LT(find<effect::ArmDeadline>(last)->at - now, seconds(10));
  feed(job_event::DeadlinePassed{deadline});
  EXPECT_EQ(machine.phase(), JobPhase::waiting);
  resumed.reset();
  known.reset();
  up.clear();
  step = {0};
  run();
  EXPECT_EQ(machine.generation(), (Generation{2, 1}));
  EXPECT_GE(members().begin()->value, 4U);  // a number is given once
}

TEST_F(Adoption, work_that_ended_before_the_last_node_is_back_has_ended) {
  restart();
  come_back(7);
  for (const std::uint32_t rank : {0U, 1U}) {
    feed(job_event::RankFinished{{rank}, former->generation, step, {5, 5}});
  }
  come_back(9);
  EXPECT_EQ(machine.phase(), JobPhase::running);
  for (const std::uint32_t rank : {2U, 3U}) {
    feed(job_event::RankFinished{{rank}, former->generation, step, {5, 5}});
  }
  ASSERT_NE(said<effect::Stop>(), nullptr);
  EXPECT_EQ(said<effect::Stop>()->exit_code, 0);
}

TEST_F(Adoption, work_that_failed_before_the_last_node_is_back_has_failed) {
  restart();
  come_back(7);
  feed(job_event::RankFailed{{0}, former->generation, {ErrorAction::end_generation, "a peer is gone"}});
  come_back(9);
  ASSERT_NE(said<effect::Adopted>(), nullptr);
  ASSERT_NE(said<effect::Fence>(), nullptr);
  EXPECT_NE(said<effect::Fence>()->why.find("a peer is gone"), std::string::npos);
}

TEST_F(Adoption, steps_of_the_time_without_a_supervisor_are_reported_whoever_is_lost) {
  restart();
  die_without_a_supervisor(2);
  come_back(7);
  come_back(9);
  ASSERT_NE(said<effect::Fence>(), nullptr);
  ASSERT_NE(said<effect::Report>(), nullptr);
  EXPECT_EQ(said<effect::Report>()->record.step, Step{3});
}

// Such a one was told to leave by the former supervisor, or was started to take the place of one that was.
TEST_F(Adoption, ranks_beyond_those_asked_for_leave_by_plan) {
  asked = 2;
  restart();
  come_back(7);
  come_back(9);
  kill(3);
  change();
  EXPECT_EQ(machine.plan()->rank_count(), 3U);
  EXPECT_TRUE(machine.plan()->is_idle({2}));
  ASSERT_NE(said<effect::Intend>(), nullptr);
  commit(said<effect::Intend>()->generation);
  ASSERT_NE(said<effect::KillRank>(), nullptr);
  EXPECT_EQ(said<effect::KillRank>()->rank, RankId{2});
  up.erase({2});
  change();
  EXPECT_EQ(members(), ranks({0, 1}));
}

// Whoever was root then may have left with its node, and with what it had said.
TEST_F(Adoption, steps_are_final_though_those_before_them_are_known_to_nobody) {
  restart();
  known.reset();
  come_back(7);
  come_back(9);
  ASSERT_EQ(machine.phase(), JobPhase::running);
  EXPECT_EQ(machine.final_step(), Step{0});
  commit();
  EXPECT_EQ(machine.final_step(), Step{4});
  ASSERT_NE(said<effect::Report>(), nullptr);
  EXPECT_EQ(machine.dropped(), 0U);
}

// The first record was made, and the supervisor was lost within a change before it heard of it: no plan is in force anywhere.
TEST_F(Adoption, a_step_that_only_members_know_is_not_undone) {
  const std::optional<DecisionRecord> at_members = known;
  restart(Generation{1, 2});
  known.reset();
  come_back(7, false);
  come_back(9, false);
  feed(job_event::DeadlinePassed{deadline});
  ASSERT_EQ(machine.phase(), JobPhase::fencing);
  known = at_members;
  answer_fence();
  ASSERT_NE(said<effect::Prepare>(), nullptr);
  ASSERT_TRUE(said<effect::Prepare>()->transition.has_value());
  EXPECT_EQ(said<effect::Prepare>()->transition->step, Step{3});
}

TEST_F(Adoption, a_drain_asked_for_before_any_plan_is_known_is_kept) {
  journaled = known;
  restart(Generation{1, 2});
  come_back(7, false);
  come_back(9, false);
  feed(job_event::DrainNode{{9}});
  feed(job_event::DeadlinePassed{deadline});
  ASSERT_EQ(machine.phase(), JobPhase::fencing);
  answer_fence();
  ASSERT_EQ(machine.phase(), JobPhase::preparing);
  for (const std::uint32_t rank : {2U, 3U}) EXPECT_TRUE(machine.plan()->is_idle({rank}));
}

TEST_F(Adoption, a_paused_job_stays_paused) {
  paused = true;
  restart();
  come_back(7, false);
  come_back(9, false);
  feed(job_event::DeadlinePassed{deadline});
  answer_fence();
  prepare_all();
  EXPECT_EQ(machine.phase(), JobPhase::paused);
  EXPECT_EQ(said<effect::Resume>(), nullptr);
}

TEST_F(Adoption, a_cancelled_job_has_nodes_that_come_late_stop) {
  restart();
  come_back(7);
  feed(job_event::Cancel{"it was cancelled", 130});
  ASSERT_NE(said<effect::Stop>(), nullptr);
  come_back(9);
  EXPECT_NE(said<effect::Stop>(), nullptr);
  all_down();
  EXPECT_EQ(machine.phase(), JobPhase::ended);
}

}  // namespace
}  // namespace kintsugi::testing
