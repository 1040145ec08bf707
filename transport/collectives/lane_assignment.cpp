#include "transport/collectives/lane_assignment.hpp"

#include "base/assert.hpp"

namespace kintsugi::transport::collectives {

LaneAssignment::LaneAssignment(LaneTree tree, std::vector<LaneRange> ranges) : tree_(tree), ranges_(std::move(ranges)) {
  std::uint32_t next = 0;
  for (const LaneRange& range : ranges_) {
    KINTSUGI_ASSERT_MSG(range.first == next && range.end >= range.first, "lane ranges follow one another");
    next = range.end;
  }
  KINTSUGI_ASSERT_MSG(next == tree_.lanes(), "lane ranges cover the tree");
}

std::vector<TreeNode> LaneAssignment::nodes_of(RankId rank) const {
  std::vector<TreeNode> nodes;
  for (const TreeSource& source : sources()) {
    if (source.rank == rank) nodes.push_back(source.node);
  }
  return nodes;
}

std::vector<TreeSource> LaneAssignment::sources() const {
  std::vector<TreeSource> all;
  for (const LaneRange& range : ranges_) {
    for (const TreeNode node : tree_.maximal_subtrees(range.first, range.end)) all.push_back({node, range.rank});
  }
  return all;
}

}  // namespace kintsugi::transport::collectives
