#include "engine/control/takeover.hpp"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

using namespace takeover_event;
namespace effect = takeover_effect;

constexpr std::uint64_t kCluster = 0xc1;
const Tenure kFirst{1, {100}}, kSecond{2, {200}};

Came came(DialerId dialer, JournalStamp copy, Tenure served = kSecond, std::uint64_t cluster = kCluster) {
  return {dialer, {{dialer + 1000}, cluster, served, copy}};
}
CopyRead read(DialerId dialer, JournalStamp stamp, const std::vector<DialerId>& nodes) {
  CopyRead e{dialer, stamp, {}, {kFirst, kSecond}};
  for (const DialerId node : nodes) e.nodes.insert({node + 1000});
  return e;
}

template <class Effect>
const Effect* find(const TakeoverEffects& effects) {
  for (const TakeoverEffect& e : effects) {
    if (const auto* found = std::get_if<Effect>(&e)) return found;
  }
  return nullptr;
}

class TakeoverTest : public ::testing::Test {
 protected:
  TakeoverEffects step(const TakeoverEvent& event) { return machine.step(event, now); }
  Instant now{1000};
  Takeover machine;
};

TEST_F(TakeoverTest, the_copy_is_taken_once_all_nodes_that_it_names_are_there) {
  ASSERT_NE(find<effect::ArmDeadline>(machine.start(now)), nullptr);
  const auto* asked = find<effect::AskForCopy>(step(came(1, {2, 9})));
  ASSERT_NE(asked, nullptr);
  EXPECT_EQ(find<effect::Take>(step(read(1, {2, 9}, {1, 2}))), nullptr) << "node 2 may have a newer one";
  const auto effects = step(came(2, {2, 8}));
  const auto* take = find<effect::Take>(effects);
  ASSERT_NE(take, nullptr);
  EXPECT_EQ(take->dialer, 1u);
  EXPECT_EQ(take->least_epoch, 1000u);
  EXPECT_EQ(take->absent, 0u);
  EXPECT_TRUE(take->also_before.empty());
  EXPECT_TRUE(step(came(3, {2, 20})).empty()) << "it is over";
}

TEST_F(TakeoverTest, of_two_copies_the_newer_is_taken_a_later_epoch_before_a_longer_one) {
  step(came(1, {1, 50}));
  step(read(1, {1, 50}, {1, 2}));
  const auto asked = step(came(2, {2, 3}));
  ASSERT_NE(find<effect::AskForCopy>(asked), nullptr);
  const auto effects = step(read(2, {2, 3}, {1, 2}));
  ASSERT_NE(find<effect::Take>(effects), nullptr);
  EXPECT_EQ(find<effect::Take>(effects)->dialer, 2u);
}

TEST_F(TakeoverTest, one_that_goes_before_its_copy_is_here_is_replaced_by_the_next_best) {
  step(came(1, {2, 9}));
  step(came(2, {2, 8}));
  const auto effects = step(Went{1});
  ASSERT_NE(find<effect::AskForCopy>(effects), nullptr);
  EXPECT_EQ(find<effect::AskForCopy>(effects)->dialer, 2u);
  EXPECT_TRUE(step(read(1, {2, 9}, {1})).empty()) << "it is not asked any more";
}

TEST_F(TakeoverTest, a_node_that_stays_away_has_its_time_and_then_it_goes_without) {
  step(came(1, {2, 9}));
  const auto effects = step(read(1, {2, 9}, {1, 2, 3}));
  ASSERT_NE(find<effect::ArmDeadline>(effects), nullptr);
  EXPECT_EQ(find<effect::ArmDeadline>(effects)->at, now + kTakeoverGather);
  const auto late = step(DeadlinePassed{});
  ASSERT_NE(find<effect::Take>(late), nullptr);
  EXPECT_EQ(find<effect::Take>(late)->absent, 2u);
}

TEST_F(TakeoverTest, a_node_that_was_heard_and_is_gone_is_waited_for) {
  step(came(2, {2, 8}));
  step(read(2, {2, 8}, {1, 2}));
  step(Went{2});
  EXPECT_EQ(find<effect::Take>(step(came(1, {}))), nullptr);
  EXPECT_EQ(find<effect::Take>(step(came(3, {2, 8}))), nullptr) << "another node does not stand for it";
  const auto back = step(Came{4, {{1002}, kCluster, kSecond, {2, 8}}});
  ASSERT_NE(find<effect::Take>(back), nullptr) << "the same process over another link";
}

TEST_F(TakeoverTest, nobody_with_a_copy_is_told) {
  step(came(1, {}));
  const auto effects = step(DeadlinePassed{});
  ASSERT_NE(find<effect::GiveUp>(effects), nullptr);
  EXPECT_NE(find<effect::GiveUp>(effects)->why.find("no node that keeps a copy"), std::string::npos);
}

TEST_F(TakeoverTest, nodes_of_another_cluster_are_refused) {
  step(came(1, {2, 9}));
  const auto effects = step(came(2, {7, 9}, kSecond, kCluster + 1));
  ASSERT_NE(find<effect::Refuse>(effects), nullptr);
  EXPECT_EQ(find<effect::Refuse>(effects)->dialer, 2u);
}

TEST_F(TakeoverTest, the_epoch_is_above_all_that_nodes_have_served_and_whom_they_served_is_before_it) {
  const Tenure third{3, {300}};
  step(came(1, {2, 9}, third));
  const auto effects = step(read(1, {2, 9}, {1}));
  ASSERT_NE(find<effect::Take>(effects), nullptr);
  EXPECT_EQ(find<effect::Take>(effects)->also_before, std::vector<Tenure>{third});

  Takeover next;
  next.start(now);
  next.step(came(1, {1000, 9}, {1003, {400}}), now);
  EXPECT_EQ(find<effect::Take>(next.step(read(1, {1000, 9}, {1}), now))->least_epoch, 2000u);
}

TEST(Claims, a_node_may_come_to_whoever_descends_from_the_one_it_served) {
  const Tenure self{3, {300}};
  const std::vector<Tenure> before{kFirst, kSecond};
  const auto verdict = [&](Tenure served, std::uint64_t cluster = kCluster) {
    return judge({{1}, cluster, served, {}}, kCluster, self, before);
  };
  EXPECT_EQ(verdict({}), Claim::known) << "a newcomer";
  EXPECT_EQ(verdict(kFirst), Claim::known);
  EXPECT_EQ(verdict(kSecond), Claim::known);
  EXPECT_EQ(verdict(self), Claim::known);
  EXPECT_EQ(verdict({9, {900}}, kCluster + 1), Claim::known) << "the node itself refuses another cluster";
  EXPECT_EQ(verdict({1000, {900}}), Claim::newer);
  EXPECT_EQ(verdict({3, {301}}), Claim::newer) << "of the same epoch, from a copy of the same directory";
  EXPECT_EQ(verdict({2, {201}}), Claim::stranger);
}

// However often the former one is started again: it never rules a node that has served the one that took over.
TEST(Claims, the_former_supervisor_never_gets_a_node_back) {
  std::vector<Tenure> before{kFirst};
  for (std::uint32_t epoch = 2; epoch < 3000; ++epoch) {
    const Tenure self{epoch, {1'000'000 + epoch}};
    ASSERT_NE(judge({{1}, kCluster, {1000, {900}}, {}}, kCluster, self, before), Claim::known);
    before.push_back(self);
  }
}

}  // namespace
}  // namespace kintsugi
