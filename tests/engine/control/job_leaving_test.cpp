// Drain and evict: a rank gives up its work at one vote and its membership at the next.
#include "tests/engine/control/job_case.hpp"

namespace kintsugi {
namespace {

using namespace job_event;  // NOLINT(google-build-using-namespace)
namespace effect = job_effect;

class JobLeaving : public testing::JobCase {
 protected:
  using JobCase::JobCase;
  // The vote after which the change that was asked for happens.
  void vote_for_change() {
    ASSERT_NE(said<effect::Intend>(), nullptr);
    commit(said<effect::Intend>()->generation);
    ASSERT_EQ(machine.phase(), JobPhase::fencing);
  }
  // Those that the machine wants gone end; kept apart from `last`.
  std::set<RankId> killed() const {
    std::set<RankId> ranks;
    for (const JobEffect& e : last) {
      if (const auto* kill = std::get_if<effect::KillRank>(&e)) ranks.insert(kill->rank);
    }
    return ranks;
  }
};

TEST_F(JobLeaving, a_drained_node_gives_up_its_work_then_its_ranks_then_itself_and_nothing_is_recomputed) {
  run();
  feed(DrainNode{{9}});
  vote_for_change();
  change();
  EXPECT_EQ(members(), ranks({0, 1, 2, 3}));
  for (const std::uint32_t rank : {2U, 3U}) EXPECT_TRUE(machine.plan()->is_idle({rank}));
  vote_for_change();
  EXPECT_EQ(killed(), ranks({2, 3}));
  up.erase({2});
  up.erase({3});
  change();
  EXPECT_EQ(members(), ranks({0, 1}));
  commit();
  ASSERT_NE(said<effect::Incident>(), nullptr);
  EXPECT_EQ(said<effect::Incident>()->report.kind, "planned");
  EXPECT_EQ(said<effect::Incident>()->report.lanes_recomputed, 0U);
  feed(RankDown{{2}, "was killed by its node", false});
  EXPECT_EQ(said<effect::NodeFree>(), nullptr);
  feed(RankDown{{3}, "was killed by its node", false});
  ASSERT_NE(said<effect::NodeFree>(), nullptr);
  EXPECT_EQ(said<effect::NodeFree>()->node, NodeId{9});
  EXPECT_EQ(machine.phase(), JobPhase::running);
  EXPECT_EQ(said<effect::StartRanks>(), nullptr);  // there is no other slot
}

// Nobody comes to take their place: as many as can work stay.
TEST_F(JobLeaving, when_every_node_is_drained_the_surplus_leaves_and_the_rest_work_on) {
  run();
  join(11, "c", 2);
  feed(DrainNode{{9}});
  all_up();
  for (const std::uint32_t node : {7U, 11U}) feed(DrainNode{{node}});
  commit(machine.generation() < Generation{1, 2} ? std::optional(Generation{1, 2}) : std::nullopt);
  change();
  EXPECT_EQ(machine.plan()->rank_count(), 6U);
  for (const std::uint32_t rank : {4U, 5U}) EXPECT_TRUE(machine.plan()->is_idle({rank}));
  for (const std::uint32_t rank : {0U, 1U, 2U, 3U}) EXPECT_FALSE(machine.plan()->is_idle({rank}));
  vote_for_change();
  EXPECT_EQ(killed(), ranks({4, 5}));
}

// It could take over, but it was not asked what it holds: it is let in by the next change.
TEST_F(JobLeaving, members_stay_for_one_that_came_up_after_their_fence) {
  run();
  join(11, "c", 2);
  for (const std::uint32_t node : {7U, 9U}) feed(DrainNode{{node}});
  kill(0);
  ASSERT_EQ(machine.phase(), JobPhase::fencing);
  all_up();
  answer_fence();
  ASSERT_EQ(machine.phase(), JobPhase::preparing);
  EXPECT_EQ(members(), ranks({1, 2, 3}));
  for (const std::uint32_t rank : {1U, 2U, 3U}) EXPECT_FALSE(machine.plan()->is_idle({rank}));
}

TEST_F(JobLeaving, a_spare_slot_makes_up_for_a_drained_rank_in_the_same_change) {
  run();
  join(11, "c", 2);
  feed(DrainNode{{9}});
  ASSERT_NE(said<effect::StartRanks>(), nullptr);
  EXPECT_EQ(said<effect::Intend>(), nullptr);
  all_up();
  vote_for_change();
  change();
  EXPECT_EQ(members(), ranks({0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(machine.plan()->is_idle({2}));
  EXPECT_FALSE(machine.plan()->is_idle({4}));
}

TEST_F(JobLeaving, a_fault_while_a_rank_leaves_is_survived_with_what_it_still_holds) {
  run();
  feed(EvictRank{{3}});
  kill(0);
  ASSERT_EQ(machine.phase(), JobPhase::fencing);
  change();
  EXPECT_EQ(members(), ranks({1, 2, 3}));
  EXPECT_TRUE(machine.plan()->is_idle({3}));
  commit();
  EXPECT_EQ(machine.phase(), JobPhase::running);
}

// What it holds is still on its way: it may have the only whole copies.
TEST_F(JobLeaving, a_fault_in_the_plan_that_takes_a_ranks_work_does_not_let_it_go) {
  run();
  feed(EvictRank{{3}});
  vote_for_change();
  answer_fence();
  ASSERT_EQ(machine.phase(), JobPhase::preparing);
  ASSERT_TRUE(machine.plan()->is_idle({3}));
  kill(0);
  ASSERT_EQ(machine.phase(), JobPhase::fencing);
  EXPECT_TRUE(killed().empty());
}

TEST_F(JobLeaving, an_evicted_rank_is_not_succeeded_in_its_slot) {
  run();
  feed(EvictRank{{3}});
  vote_for_change();
  change();
  vote_for_change();
  up.erase({3});
  change();
  kill(3);
  EXPECT_EQ(said<effect::StartRanks>(), nullptr);
  EXPECT_EQ(members(), ranks({0, 1, 2}));
}

TEST_F(JobLeaving, the_last_rank_stays_until_another_comes) {
  run();
  feed(DrainNode{{7}});
  const Generation next = said<effect::Intend>()->generation;
  feed(DrainNode{{9}});
  commit(next);
  change();
  for (const RankId rank : members()) EXPECT_FALSE(machine.plan()->is_idle(rank));
  EXPECT_EQ(said<effect::Intend>(), nullptr);
  join(11, "c", 1);
  all_up();
  vote_for_change();
  change();
  EXPECT_FALSE(machine.plan()->is_idle({4}));
  EXPECT_TRUE(machine.plan()->is_idle({0}));
}

TEST_F(JobLeaving, whoever_is_unknown_or_gone_is_not_evicted) {
  run();
  feed(EvictRank{{77}});
  feed(DrainNode{{77}});
  EXPECT_EQ(machine.dropped(), 2U);
}

}  // namespace
}  // namespace kintsugi
