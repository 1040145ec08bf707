// Whatever the assignment of lanes to ranks, the bits are those of the naive tree.
#include "transport/collectives/lane_assignment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/philox.hpp"

namespace kintsugi::transport::collectives {
namespace {

// Random signs and magnitudes over 2^40: nearly every addition rounds.
std::vector<float> lane_values(std::uint32_t lanes, std::uint64_t seed) {
  std::vector<float> values;
  for (std::uint32_t i = 0; i < lanes; ++i) {
    const std::uint64_t bits = philox_u64(philox_key(seed), i, 0);
    const auto mantissa = static_cast<float>(static_cast<std::int64_t>(bits >> 40) - (1 << 23));
    values.push_back(std::ldexp(mantissa, static_cast<int>(bits % 40)));
  }
  return values;
}

float naive(const LaneTree& tree, TreeNode node, const std::vector<float>& values) {
  if (node.count == 1) return values[node.first];
  return naive(tree, tree.left(node), values) + naive(tree, tree.right(node), values);
}

// As the primary does it: partial sums of the sources, added when the tree says so.
float reduced(const LaneAssignment& assignment, const std::vector<float>& values) {
  std::vector<TreeNode> nodes;
  for (const TreeSource& source : assignment.sources()) nodes.push_back(source.node);
  const auto merges = assignment.tree().merges_after(nodes);
  std::vector<float> stack;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    stack.push_back(naive(assignment.tree(), nodes[i], values));
    for (std::uint32_t m = 0; m < merges[i]; ++m) {
      const float right = stack.back();
      stack.pop_back();
      stack.back() += right;
    }
  }
  return stack.front();
}

void expect_the_naive_bits(const LaneTree& tree, const std::vector<std::uint32_t>& ends,
                           const std::vector<float>& values) {
  std::vector<LaneRange> ranges;
  std::uint32_t first = 0;
  for (std::uint32_t rank = 0; rank < ends.size(); ++rank) {
    ranges.push_back({{rank}, first, ends[rank]});
    first = ends[rank];
  }
  const LaneAssignment assignment(tree, ranges);
  ASSERT_EQ(std::bit_cast<std::uint32_t>(reduced(assignment, values)),
            std::bit_cast<std::uint32_t>(naive(tree, tree.root(), values)));
}

TEST(LaneAssignment, every_contiguous_assignment_up_to_16_lanes_gives_the_naive_bits) {
  for (std::uint32_t lanes = 1; lanes <= 16; ++lanes) {
    const LaneTree tree(lanes);
    const auto values = lane_values(lanes, lanes);
    for (std::uint32_t cuts = 0; cuts < (1U << (lanes - 1)); ++cuts) {
      std::vector<std::uint32_t> ends;
      for (std::uint32_t i = 1; i < lanes; ++i) {
        if (((cuts >> (i - 1)) & 1) != 0) ends.push_back(i);
      }
      ends.push_back(lanes);
      expect_the_naive_bits(tree, ends, values);
    }
  }
}

TEST(LaneAssignment, random_assignments_up_to_64_ranks_some_without_lanes_give_the_naive_bits) {
  for (std::uint64_t seed = 0; seed < 100'000; ++seed) {
    const std::uint64_t shape = philox_u64(philox_key(seed), 1, 0);
    const auto lanes = static_cast<std::uint32_t>(1 + shape % 128);
    const auto ranks = static_cast<std::uint32_t>(1 + (shape >> 32) % 64);
    std::vector<std::uint32_t> ends;
    for (std::uint32_t i = 0; i + 1 < ranks; ++i) {
      ends.push_back(static_cast<std::uint32_t>(philox_u64(philox_key(seed), 2, i) % (lanes + 1)));
    }
    ends.push_back(lanes);
    std::sort(ends.begin(), ends.end());
    expect_the_naive_bits(LaneTree(lanes), ends, lane_values(lanes, seed));
  }
}

TEST(LaneAssignment, a_rank_sends_the_fewest_subtrees) {
  const LaneAssignment assignment(LaneTree(8), {{{4}, 0, 3}, {{2}, 3, 3}, {{0}, 3, 8}});
  EXPECT_EQ(assignment.nodes_of({4}), (std::vector<TreeNode>{{0, 2}, {2, 1}}));
  EXPECT_EQ(assignment.nodes_of({2}), std::vector<TreeNode>{});
  EXPECT_EQ(assignment.nodes_of({0}), (std::vector<TreeNode>{{3, 1}, {4, 4}}));
  EXPECT_EQ(assignment.nodes_of({9}), std::vector<TreeNode>{});
}

}  // namespace
}  // namespace kintsugi::transport::collectives
