#include "engine/control/link_faults.hpp"

#include <gtest/gtest.h>

#include "tests/engine/control/job_case.hpp"

namespace kintsugi::testing {
namespace {

using namespace job_event;  // NOLINT(google-build-using-namespace)

constexpr Instant kNow{1'000'000'000};
constexpr NodeId kA{1}, kB{2}, kC{3};

LinkFaults::Loss nothing(NodeId) {
  return {};
}

LinkFaults::Accusation accusation(NodeId by, NodeId of, std::uint32_t counter) {
  return {by, of, {of.value * 10}, {1, counter}};
}

LinkFaults apart(NodeId a, NodeId b) {
  LinkFaults faults;
  EXPECT_FALSE(faults.accuse(accusation(a, b, 5), kNow));
  EXPECT_TRUE(faults.accuse(accusation(a, b, 6), kNow));
  return faults;
}

TEST(LinkFaults, both_sides_of_one_generation_are_one_accusation) {
  LinkFaults faults;
  EXPECT_FALSE(faults.accuse(accusation(kA, kB, 5), kNow));
  EXPECT_FALSE(faults.accuse(accusation(kB, kA, 5), kNow));
  EXPECT_TRUE(faults.left_out({kA, kB}, nothing, kNow).empty());
  EXPECT_TRUE(faults.accuse(accusation(kB, kA, 6), kNow));
  EXPECT_EQ(faults.left_out({kA, kB}, nothing, kNow), NodeSet{kA});
}

TEST(LinkFaults, an_accusation_of_who_dies_is_no_fault_of_the_pair) {
  LinkFaults faults;
  EXPECT_FALSE(faults.accuse(accusation(kA, kB, 5), kNow));
  faults.down({20});
  EXPECT_FALSE(faults.accuse(accusation(kA, kB, 6), kNow));
}

TEST(LinkFaults, a_final_step_says_that_the_path_works) {
  LinkFaults faults;
  EXPECT_FALSE(faults.accuse(accusation(kA, kB, 5), kNow));
  faults.worked();
  EXPECT_FALSE(faults.accuse(accusation(kA, kB, 6), kNow));
}

TEST(LinkFaults, ranks_of_one_node_are_no_pair) {
  LinkFaults faults;
  EXPECT_FALSE(faults.accuse(accusation(kA, kA, 5), kNow));
  EXPECT_FALSE(faults.accuse(accusation(kA, kA, 6), kNow));
}

TEST(LinkFaults, whoever_cannot_reach_most_is_left_out_alone) {
  LinkFaults faults = apart(kA, kC);
  EXPECT_FALSE(faults.accuse(accusation(kC, kB, 5), kNow));
  EXPECT_TRUE(faults.accuse(accusation(kC, kB, 6), kNow));
  EXPECT_EQ(faults.left_out({kA, kB, kC}, nothing, kNow), NodeSet{kC});
}

TEST(LinkFaults, the_side_whose_loss_costs_least_is_left_out_and_never_the_last_copy) {
  const LinkFaults faults = apart(kA, kB);
  const auto cells = [](NodeId node) { return LinkFaults::Loss{false, node == kA ? 3U : 1U}; };
  EXPECT_EQ(faults.left_out({kA, kB}, cells, kNow), NodeSet{kB});
  const auto last_copy = [](NodeId node) { return LinkFaults::Loss{node == kB, node == kA ? 3U : 1U}; };
  EXPECT_EQ(faults.left_out({kA, kB}, last_copy, kNow), NodeSet{kA});
}

TEST(LinkFaults, they_meet_again_after_a_time_that_doubles_while_it_is_of_no_use) {
  LinkFaults faults = apart(kA, kB);
  const Instant first = kNow + kFirstApart;
  EXPECT_FALSE(faults.left_out({kA, kB}, nothing, first - milliseconds(1)).empty());
  EXPECT_TRUE(faults.left_out({kA, kB}, nothing, first).empty());
  EXPECT_TRUE(faults.accuse(accusation(kA, kB, 9), first));
  EXPECT_FALSE(faults.left_out({kA, kB}, nothing, first + kFirstApart).empty());
  EXPECT_TRUE(faults.left_out({kA, kB}, nothing, first + kFirstApart * 2).empty());
  EXPECT_FALSE(faults.accuse(accusation(kA, kB, 20), first + kFirstApart * 8));  // long ago: it is new
}

TEST(LinkFaults, who_is_lost_or_absent_keeps_nobody_apart) {
  LinkFaults faults = apart(kA, kB);
  EXPECT_TRUE(faults.left_out({kB, kC}, nothing, kNow).empty());
  faults.lost(kA);
  EXPECT_TRUE(faults.left_out({kA, kB}, nothing, kNow).empty());
}

// Ranks 0 and 1 on node a, 2 and 3 on node b.
class CutLink : public JobCase {
 protected:
  CutLink() { run(); }
  void accuse(std::uint32_t by, std::uint32_t peer, Generation g) {
    feed(RankFailed{{by}, g, {ErrorAction::end_generation, "rank is gone"}, {{peer}}});
  }
  std::uint32_t other_side(std::uint32_t rank) const {
    for (const auto& [r, node] : node_of) {
      if (node != node_of.at({rank})) return r.value;
    }
    return rank;
  }
};

TEST_F(CutLink, the_first_accusation_is_tried_again_with_everybody) {
  accuse(0, other_side(0), machine.generation());
  change();
  EXPECT_EQ(members(), ranks({0, 1, 2, 3}));
}

TEST_F(CutLink, the_second_leaves_one_node_out_and_training_goes_on_without_it) {
  const std::uint32_t far = other_side(0);
  const Generation first = machine.generation();
  accuse(0, far, first);
  accuse(far, 0, first);  // stale by now, and of the same fault
  answer_fence();
  ASSERT_EQ(machine.phase(), JobPhase::preparing);
  accuse(0, far, machine.generation());
  change();
  EXPECT_EQ(machine.plan()->rank_count(), 2U);
  commit();
  const auto* incident = said<job_effect::Incident>();
  ASSERT_NE(incident, nullptr);
  EXPECT_EQ(incident->report.kind, "link cut");
  EXPECT_EQ(incident->report.steps_lost, 0U);
  EXPECT_EQ(said<job_effect::Intend>(), nullptr);  // they are not let in at once
}

TEST_F(CutLink, after_their_time_they_are_let_in_by_a_planned_change) {
  const std::uint32_t far = other_side(0);
  accuse(0, far, machine.generation());
  answer_fence();
  accuse(0, far, machine.generation());
  change();
  commit();
  now = now + kFirstApart;
  commit();
  const auto* intend = said<job_effect::Intend>();
  ASSERT_NE(intend, nullptr);
  commit(intend->generation);
  change();
  EXPECT_EQ(members(), ranks({0, 1, 2, 3}));
}

TEST_F(CutLink, a_dead_peer_is_never_a_cut_link) {
  const std::uint32_t far = other_side(0);
  accuse(0, far, machine.generation());
  kill(far);
  change();
  commit();
  EXPECT_EQ(machine.plan()->rank_count(), 3U);
}

}  // namespace
}  // namespace kintsugi::testing
