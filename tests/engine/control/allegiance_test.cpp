#include "engine/control/allegiance.hpp"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

constexpr std::uint64_t kCluster = 0xfeed;
const Supervisor kFirst{kCluster, 3, {11}};
const Supervisor kSuccessor{kCluster, 4, {12}};

TEST(Allegiance, a_successor_is_served_under_the_same_number) {
  Allegiance node;
  ASSERT_TRUE(node.serve(kFirst, {7}));
  EXPECT_TRUE(node.lose("reset", {100}));
  EXPECT_FALSE(node.is_welcome());
  EXPECT_EQ(node.number(), NodeId{7});
  ASSERT_TRUE(node.serve(kSuccessor, {7}));
  EXPECT_TRUE(node.is_welcome());
}

TEST(Allegiance, an_older_epoch_is_refused_and_so_is_another_supervisor_of_the_same) {
  Allegiance node;
  ASSERT_TRUE(node.serve(kSuccessor, {7}));
  node.lose("reset", {100});
  for (const Supervisor& stale : {kFirst, Supervisor{kCluster, 4, {13}}}) {
    const Result<void> served = node.serve(stale, {7});
    ASSERT_FALSE(served);
    EXPECT_EQ(served.error().action, ErrorAction::refuse);
    EXPECT_FALSE(node.is_welcome());
  }
  EXPECT_TRUE(node.serve(kSuccessor, {7}));
}

TEST(Allegiance, another_cluster_is_refused_whatever_its_epoch) {
  Allegiance node;
  ASSERT_TRUE(node.serve(kFirst, {7}));
  const Result<void> served = node.serve({kCluster + 1, 9, {12}}, {7});
  ASSERT_FALSE(served);
  EXPECT_EQ(served.error().action, ErrorAction::refuse);
}

TEST(Allegiance, a_supervisor_that_gives_another_number_takes_it_as_a_new_node) {
  Allegiance node;
  ASSERT_TRUE(node.serve(kFirst, {7}));
  node.lose("reset", {100});
  const Result<void> served = node.serve(kSuccessor, {8});
  ASSERT_FALSE(served);
  EXPECT_EQ(served.error().action, ErrorAction::retry);
  node.forget_number();
  EXPECT_TRUE(node.serve(kSuccessor, {9}));
}

TEST(Allegiance, the_one_it_lost_has_given_it_up) {
  Allegiance node;
  EXPECT_FALSE(node.was_given_up_by(kFirst.incarnation));
  ASSERT_TRUE(node.serve(kFirst, {7}));
  node.lose("pings unanswered", {100});
  EXPECT_TRUE(node.was_given_up_by(kFirst.incarnation));
  EXPECT_FALSE(node.was_given_up_by(kSuccessor.incarnation));
}

TEST(Allegiance, the_limit_counts_from_the_first_loss_and_is_that_of_the_job) {
  Allegiance node;
  ASSERT_TRUE(node.serve(kFirst, {7}));
  EXPECT_EQ(node.limit(), kOrphanLimit);
  node.set_limit({1}, seconds(5));
  EXPECT_TRUE(node.lose("reset", Instant{} + seconds(10)));
  EXPECT_FALSE(node.lose("refused", Instant{} + seconds(12)));
  EXPECT_EQ(node.time_left(Instant{} + seconds(13)), seconds(2));
  EXPECT_NE(node.last_words().find("reset"), std::string::npos);
  node.forget_limit({1});
  EXPECT_EQ(node.limit(), kOrphanLimit);
}

}  // namespace
}  // namespace kintsugi
