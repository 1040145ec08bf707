#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <array>

#include "base/lane_tree.hpp"
#include "tests/kernels/float64_reference.hpp"

namespace kintsugi::kernels::cpu {
namespace {

constexpr std::int64_t kCounts[] = {1, 3, 15, 16, 17, 100, 257, 40000};

// The order of kernels/ops.hpp, one element at a time.
template <class Value>
double written_order(const std::vector<float>& in, const Value& value) {
  std::array<double, 16> running{};
  for (std::size_t i = 0; i < in.size(); ++i) running[i % 16] += value(static_cast<double>(in[i]));
  const auto pair = [&](std::size_t i, std::size_t width) { return running[i] + running[i + width]; };
  std::array<double, 8> eight{};
  for (std::size_t i = 0; i < 8; ++i) eight[i] = pair(i, 8);
  const double left = (eight[0] + eight[4]) + (eight[2] + eight[6]);
  const double right = (eight[1] + eight[5]) + (eight[3] + eight[7]);
  return left + right;
}

template <class Test>
void on_every_target(const Test& test) {
  prepare_compute_thread();
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    test();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(Sums, sum_and_squared_norm_are_the_written_order_on_every_target) {
  ThreadPool pool(1);
  on_every_target([&] {
    for (const std::int64_t count : kCounts) {
      const auto in = random_vector<float>(count, 1e3, static_cast<std::uint64_t>(count));
      float total = 0;
      double squares = 0;
      sum(pool, &total, in.data(), count);
      const std::span<const float> all(in);
      squared_norms(pool, &squares, {&all, 1});
      EXPECT_EQ(total, static_cast<float>(written_order(in, [](double x) { return x; })));
      EXPECT_EQ(squares, written_order(in, [](double x) { return x * x; }));
    }
  });
}

// The value of a subtree from the leaves, straight from the definition.
std::vector<float> naive(const LaneTree& tree, TreeNode node, const std::vector<std::vector<float>>& leaves) {
  if (node.count == 1) return leaves[node.first];
  std::vector<float> out = naive(tree, tree.left(node), leaves);
  const std::vector<float> right = naive(tree, tree.right(node), leaves);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] += right[i];
  return out;
}

// The cut of all lanes into maximal subtrees at drawn borders: what ranks would send.
std::vector<TreeNode> drawn_cut(const LaneTree& tree, std::uint64_t seed) {
  std::vector<TreeNode> nodes;
  std::uint32_t first = 0;
  for (std::uint64_t draw = 0; first < tree.lanes(); ++draw) {
    const std::uint64_t left = tree.lanes() - first;
    const auto end = first + 1 + static_cast<std::uint32_t>(philox_u64(philox_key(seed), draw, first) % left);
    for (const TreeNode n : tree.maximal_subtrees(first, end)) nodes.push_back(n);
    first = end;
  }
  return nodes;
}

TEST(TreeSum, any_cut_of_the_lanes_gives_the_naive_tree) {
  ThreadPool pool(2);
  for (std::uint32_t lanes = 1; lanes <= 33; ++lanes) {
    const LaneTree tree(lanes);
    const std::int64_t count = 517;  // a block and a rest
    std::vector<std::vector<float>> leaves;
    for (std::uint32_t i = 0; i < lanes; ++i) leaves.push_back(random_vector<float>(count, 10, i));
    const std::vector<float> expected = naive(tree, tree.root(), leaves);
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const std::vector<TreeNode> cut = drawn_cut(tree, 100 * lanes + seed);
      std::vector<std::vector<float>> sums;
      for (const TreeNode n : cut) sums.push_back(naive(tree, n, leaves));
      std::vector<const float*> nodes;
      for (const auto& s : sums) nodes.push_back(s.data());
      const std::vector<std::uint32_t> merges = tree.merges_after(cut);
      std::vector<float> out(static_cast<std::size_t>(count));
      tree_sum(pool, out.data(), nodes, merges, count);
      ASSERT_TRUE(same_bits(out, expected)) << lanes << " lanes, seed " << seed;
      std::vector<float>& in_place = sums[seed % sums.size()];
      tree_sum(pool, in_place.data(), nodes, merges, count);
      ASSERT_TRUE(same_bits(in_place, expected)) << lanes << " lanes in place, seed " << seed;
    }
  }
}

TEST(TreeSum, threads_and_targets_do_not_show) {
  const LaneTree tree(5);
  const std::int64_t count = 100000;
  std::vector<std::vector<float>> leaves;
  for (std::uint32_t i = 0; i < 5; ++i) leaves.push_back(random_vector<float>(count, 10, i));
  const std::vector<float> expected = naive(tree, tree.root(), leaves);
  std::vector<const float*> nodes;
  for (const auto& leaf : leaves) nodes.push_back(leaf.data());
  const std::vector<std::uint32_t> merges = tree.merges_after({{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}});
  on_every_target([&] {
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      std::vector<float> out(expected.size());
      tree_sum(pool, out.data(), nodes, merges, count);
      EXPECT_TRUE(same_bits(out, expected)) << threads << " threads";
    }
  });
}

}  // namespace
}  // namespace kintsugi::kernels::cpu
