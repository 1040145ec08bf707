// Rank arithmetic of the canonical reduction (DESIGN 3.2): who sends which subtrees of the lane tree, no I/O.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.hpp"
#include "base/lane_tree.hpp"

namespace kintsugi::transport::collectives {

// Lanes [first, end) of one rank; first == end for none.
struct LaneRange {
  RankId rank;
  std::uint32_t first = 0;
  std::uint32_t end = 0;
};

struct TreeSource {
  TreeNode node;
  RankId rank;
};

class LaneAssignment {
 public:
  // `ranges` in lane order, covering every lane exactly once (asserted). Neighbours of one rank are not joined.
  LaneAssignment(LaneTree tree, std::vector<LaneRange> ranges);

  const LaneTree& tree() const { return tree_; }
  // The maximal subtrees of a rank's lanes, in lane order: its partial sums. Empty for a rank that has no lanes.
  std::vector<TreeNode> nodes_of(RankId rank) const;
  // Every partial sum of the reduction, in lane order.
  std::vector<TreeSource> sources() const;

 private:
  LaneTree tree_;
  std::vector<LaneRange> ranges_;
};

}  // namespace kintsugi::transport::collectives
