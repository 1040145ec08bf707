#include "base/flat_set.hpp"

#include <gtest/gtest.h>

#include <set>

#include "base/philox.hpp"

namespace kintsugi {
namespace {

TEST(FlatSet, does_what_a_set_does) {
  const PhiloxKey key = philox_key(8);
  std::uint64_t draws = 0;
  const auto draw = [&](std::uint64_t below) {
    return static_cast<std::uint32_t>(philox_u64(key, ++draws, 0) % below);
  };
  FlatSet<std::uint32_t> set;
  std::set<std::uint32_t> reference;
  for (int round = 0; round < 20'000; ++round) {
    const std::uint32_t item = draw(40);
    if (draw(2) == 0)
      ASSERT_EQ(set.insert(item), reference.insert(item).second);
    else
      ASSERT_EQ(set.erase(item), reference.erase(item) > 0);
    ASSERT_EQ(set.contains(item), reference.contains(item));
    ASSERT_EQ(set.items(), std::vector<std::uint32_t>(reference.begin(), reference.end()));
  }
}

TEST(FlatSet, of_two_sets_the_union_and_the_difference) {
  const RankSet a({{5}, {1}, {3}, {1}}), b{{3}, {4}};
  EXPECT_EQ(a.size(), 3U);
  EXPECT_EQ(together(a, b), (RankSet{{1}, {3}, {4}, {5}}));
  EXPECT_EQ(difference(a, b), (RankSet{{1}, {5}}));
  EXPECT_EQ(difference(a, a), RankSet{});
}

}  // namespace
}  // namespace kintsugi
