// The canonical tree (DESIGN 3.2): the fixed left-balanced binary tree over lanes 0..n-1 by which every gradient and
// every per-lane statistic is added. The left child of a node over n > 1 lanes covers the largest power of two below n.
// Which rank holds which lane never changes the tree, so it never shows in the bits.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace kintsugi {

// A subtree: lanes [first, first + count).
struct TreeNode {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  constexpr auto operator<=>(const TreeNode&) const = default;
  constexpr std::uint32_t end() const { return first + count; }
};

// The largest power of two below n; n > 1.
std::uint32_t left_lanes(std::uint32_t n);

class LaneTree {
 public:
  explicit LaneTree(std::uint32_t lanes);

  std::uint32_t lanes() const { return lanes_; }
  TreeNode root() const { return {0, lanes_}; }
  bool contains(TreeNode node) const;
  // Only for nodes of more than one lane.
  TreeNode left(TreeNode node) const;
  TreeNode right(TreeNode node) const;
  // Only for nodes other than the root.
  TreeNode parent(TreeNode node) const;

  // The fewest subtrees that cover lanes [first, end) exactly, in lane order: what a rank sends.
  std::vector<TreeNode> maximal_subtrees(std::uint32_t first, std::uint32_t end) const;

  // The steps of a post-order evaluation from `nodes` (in lane order, covering all lanes): for node i, how many times
  // the two topmost partial sums are added (left + right) after node i was pushed.
  std::vector<std::uint32_t> merges_after(const std::vector<TreeNode>& nodes) const;

 private:
  std::uint32_t lanes_;
};

}  // namespace kintsugi
