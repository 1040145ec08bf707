#include "base/ids.hpp"

#include <gtest/gtest.h>

#include <type_traits>

namespace kintsugi {
namespace {

TEST(Ids, kinds_do_not_mix) {
  static_assert(!std::is_convertible_v<RankId, NodeId>);
  static_assert(!std::is_convertible_v<std::uint32_t, RankId>);
  static_assert(!std::is_convertible_v<RankId, std::uint32_t>);
  EXPECT_LT(RankId{1}, RankId{2});
  EXPECT_EQ(to_string(StageId{3}), "3");
  EXPECT_EQ(std::hash<Step>{}(Step{9}), std::hash<Step>{}(Step{9}));
}

TEST(Ids, the_epoch_of_a_generation_orders_before_its_counter) {
  EXPECT_LT((Generation{1, 9}), (Generation{2, 0}));
  EXPECT_LT((Generation{2, 0}), (Generation{2, 1}));
  EXPECT_EQ(to_string(Generation{2, 5}), "2.5");
}

}  // namespace
}  // namespace kintsugi
