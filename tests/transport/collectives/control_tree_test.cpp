#include "transport/collectives/control_tree.hpp"

#include <gtest/gtest.h>

#include <set>

namespace kintsugi::transport::collectives {
namespace {

// Ranks of a plan need not be in order: 5n, 5(n - 1), ...
ControlTree tree_of(std::uint32_t n) {
  std::vector<RankId> ranks;
  for (std::uint32_t i = 0; i < n; ++i) ranks.push_back({(n - i) * 5});
  return ControlTree(ranks);
}

TEST(ControlTree, every_rank_but_the_root_is_the_child_of_its_parent_exactly_once) {
  for (std::uint32_t n = 1; n <= 64; ++n) {
    const ControlTree tree = tree_of(n);
    std::set<RankId> seen{tree.root()};
    for (std::uint32_t i = 1; i <= n; ++i) {
      const auto children = tree.children({i * 5});
      EXPECT_LE(children.size(), ControlTree::kFanOut);
      for (const RankId child : children) {
        EXPECT_EQ(tree.parent(child), RankId{i * 5});
        EXPECT_TRUE(seen.insert(child).second);
      }
    }
    EXPECT_EQ(seen.size(), n);
    EXPECT_EQ(tree.parent(tree.root()), std::nullopt);
  }
}

TEST(ControlTree, four_hops_reach_4096_ranks) {
  const ControlTree tree = tree_of(4096);
  std::uint32_t hops = 0;
  for (auto at = tree.parent({5}); at; at = tree.parent(*at)) ++hops;  // from the last rank
  EXPECT_EQ(hops, 4U);
}

}  // namespace
}  // namespace kintsugi::transport::collectives
