#include "base/lane_tree.hpp"

#include <bit>

#include "base/assert.hpp"

namespace kintsugi {

std::uint32_t left_lanes(std::uint32_t n) {
  KINTSUGI_ASSERT(n > 1);
  return std::bit_floor(n - 1);
}

LaneTree::LaneTree(std::uint32_t lanes) : lanes_(lanes) {
  KINTSUGI_ASSERT(lanes > 0);
}

TreeNode LaneTree::left(TreeNode node) const {
  return {node.first, left_lanes(node.count)};
}

TreeNode LaneTree::right(TreeNode node) const {
  const std::uint32_t left_count = left_lanes(node.count);
  return {node.first + left_count, node.count - left_count};
}

namespace {
// The path from the root towards `node`: its last element is the smallest subtree that covers node.first..node.end().
template <class Visit>
TreeNode descend(const LaneTree& tree, TreeNode node, Visit visit) {
  TreeNode at = tree.root();
  while (at != node && at.count > 1) {
    const TreeNode left = tree.left(at);
    const TreeNode right = tree.right(at);
    visit(at);
    if (node.end() <= left.end())
      at = left;
    else if (node.first >= right.first)
      at = right;
    else
      break;
  }
  return at;
}
}  // namespace

bool LaneTree::contains(TreeNode node) const {
  if (node.count == 0 || node.end() > lanes_ || node.end() < node.first) return false;
  if (node.count == 1) return true;  // a leaf
  return descend(*this, node, [](TreeNode) {}) == node;
}

TreeNode LaneTree::parent(TreeNode node) const {
  KINTSUGI_ASSERT(contains(node) && node != root());
  TreeNode last = root();
  descend(*this, node, [&](TreeNode at) { last = at; });
  return last;
}

std::vector<TreeNode> LaneTree::maximal_subtrees(std::uint32_t first, std::uint32_t end) const {
  KINTSUGI_ASSERT(first <= end && end <= lanes_);
  std::vector<TreeNode> found;
  const auto visit = [&](const auto& self, TreeNode node) -> void {
    if (node.end() <= first || node.first >= end) return;
    if (node.first >= first && node.end() <= end) {
      found.push_back(node);
      return;
    }
    self(self, left(node));
    self(self, right(node));
  };
  visit(visit, root());
  return found;
}

std::vector<std::uint32_t> LaneTree::merges_after(const std::vector<TreeNode>& nodes) const {
  std::vector<std::uint32_t> merges(nodes.size(), 0);
  std::vector<TreeNode> stack;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    KINTSUGI_ASSERT(contains(nodes[i]));
    KINTSUGI_ASSERT(stack.empty() ? nodes[i].first == 0 : nodes[i].first == stack.back().end());
    stack.push_back(nodes[i]);
    while (stack.size() > 1 && stack.back() != root() && parent(stack.back()) == parent(stack[stack.size() - 2])) {
      const TreeNode whole = parent(stack.back());
      stack.resize(stack.size() - 2);
      stack.push_back(whole);
      ++merges[i];
    }
  }
  KINTSUGI_ASSERT(stack.size() == 1 && stack.front() == root());
  return merges;
}

}  // namespace kintsugi
