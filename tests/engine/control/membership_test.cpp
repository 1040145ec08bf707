#include "engine/control/membership.hpp"

#include <gmock/gmock.h>

namespace kintsugi {
namespace {

using namespace member_event;  // NOLINT(google-build-using-namespace)
namespace effect = member_effect;

template <class T>
std::vector<T> all(const MemberEffects& effects) {
  std::vector<T> found;
  for (const MemberEffect& e : effects) {
    if (const T* is = std::get_if<T>(&e)) found.push_back(*is);
  }
  return found;
}

NodeInfo host(const std::string& name) {
  return {.host = name, .slots = 2};
}

TEST(Membership, a_node_that_returns_is_a_new_member) {
  Membership m;
  const NodeId first = all<effect::Welcome>(m.step(Joined{host("a")})).at(0).node;
  m.step(Left{first, "reset"});
  const NodeId second = all<effect::Welcome>(m.step(Joined{host("a")})).at(0).node;
  EXPECT_LT(first, second);
  EXPECT_EQ(m.members().size(), 1U);
}

TEST(Membership, a_job_is_offered_every_free_node_and_each_later_one_once) {
  Membership m;
  m.step(Joined{host("a")});
  m.step(Joined{host("b")});
  EXPECT_EQ(all<effect::Offer>(m.step(JobWants{{1}})).size(), 2U);
  const MemberEffects joined = m.step(Joined{host("c")});
  EXPECT_EQ(all<effect::Offer>(joined).size(), 1U);
  EXPECT_EQ(all<effect::Offer>(joined).at(0).job, JobId{1});
  EXPECT_TRUE(m.step(JobWants{{1}}).empty());
}

TEST(Membership, a_leased_node_that_leaves_is_told_to_its_job_and_a_free_one_to_nobody) {
  Membership m;
  m.step(Joined{host("a")});
  m.step(JobWants{{1}});
  const auto lost = all<effect::Lost>(m.step(Left{{1}, "reset"}));
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].why, "reset");
  EXPECT_TRUE(m.step(Left{{1}, "again"}).empty());
  m.step(JobEnded{{1}});
  m.step(Joined{host("b")});
  EXPECT_TRUE(m.step(Left{{2}, "reset"}).empty());
}

TEST(Membership, slots_of_a_job_that_ended_go_to_the_next_one) {
  Membership m;
  m.step(Joined{host("a")});
  m.step(JobWants{{1}});
  EXPECT_TRUE(all<effect::Offer>(m.step(JobWants{{2}})).empty());
  const auto offers = all<effect::Offer>(m.step(JobEnded{{1}}));
  ASSERT_EQ(offers.size(), 1U);
  EXPECT_EQ(offers[0].job, JobId{2});
}

}  // namespace
}  // namespace kintsugi
