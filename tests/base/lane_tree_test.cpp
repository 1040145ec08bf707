#include "base/lane_tree.hpp"

#include <gtest/gtest.h>

#include <bit>

namespace kintsugi {
namespace {

TEST(LaneTree, the_left_child_holds_the_largest_power_of_two_below_the_count) {
  const LaneTree tree(6);
  EXPECT_EQ(tree.left(tree.root()), (TreeNode{0, 4}));
  EXPECT_EQ(tree.right(tree.root()), (TreeNode{4, 2}));
  EXPECT_EQ(tree.parent({4, 1}), (TreeNode{4, 2}));
  EXPECT_FALSE(tree.contains({1, 2}));
  EXPECT_FALSE(tree.contains({4, 3}));
  EXPECT_FALSE(tree.contains({0, 0}));
}

TEST(LaneTree, any_contiguous_cut_rebuilds_the_whole_tree) {
  for (std::uint32_t lanes = 1; lanes <= 64; ++lanes) {
    const LaneTree tree(lanes);
    for (std::uint32_t a = 0; a <= lanes; ++a) {
      for (std::uint32_t b = a; b <= lanes; b += 3) {
        std::vector<TreeNode> nodes = tree.maximal_subtrees(0, a);
        for (const TreeNode n : tree.maximal_subtrees(a, b)) nodes.push_back(n);
        for (const TreeNode n : tree.maximal_subtrees(b, lanes)) nodes.push_back(n);
        std::uint32_t merges = 0;
        for (const std::uint32_t m : tree.merges_after(nodes)) merges += m;
        EXPECT_EQ(merges + 1, nodes.size());
      }
    }
  }
}

TEST(LaneTree, a_rank_holds_at_most_log2_plus_one_subtrees_when_it_starts_on_the_left_edge) {
  for (std::uint32_t lanes = 1; lanes <= 64; ++lanes) {
    const LaneTree tree(lanes);
    for (std::uint32_t end = 1; end <= lanes; ++end) {
      EXPECT_LE(tree.maximal_subtrees(0, end).size(), static_cast<std::size_t>(std::bit_width(end)));
    }
  }
}

}  // namespace
}  // namespace kintsugi
