#include "engine/pipeline/lane_sums.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/assert.hpp"

namespace kintsugi {

namespace {

// Of each run of lanes that enter new sums.
std::vector<TreeNode> maximal_subtrees(const Redo& redo, const LaneTree& tree, LayerId layer, LaneRange lanes) {
  std::vector<TreeNode> all;
  for (std::uint32_t first = lanes.first; first < lanes.end; ++first) {
    std::uint32_t end = first;
    while (end < lanes.end && redo.sums(layer, {end})) ++end;
    const std::vector<TreeNode> run = tree.maximal_subtrees(first, end);
    all.insert(all.end(), run.begin(), run.end());
    first = end;
  }
  return all;
}

}  // namespace

LanePlan plan_lanes(const Redo& redo, const LaneTree& tree, StageId stage, LayerId layer, const CellBlock& block) {
  const std::vector<TreeNode> maximal = maximal_subtrees(redo, tree, layer, block.lanes);
  LanePlan plan;
  std::set<std::uint32_t> free;
  std::vector<std::pair<TreeNode, std::uint32_t>> stack;  // partial sums not yet maximal, with their buffers
  for (std::uint32_t lane = block.lanes.first; lane < block.lanes.end; ++lane) {
    LaneStep& step = plan.lanes.emplace_back();
    if (!redo.runs_backward(stage, {lane})) continue;
    if (free.empty()) free.insert(plan.buffers++);
    step.buffer = *free.begin();
    if (!redo.sums(layer, {lane})) continue;
    free.erase(free.begin());
    stack.push_back({{lane, 1}, step.buffer});
    const auto is_maximal = [&] {
      return std::find(maximal.begin(), maximal.end(), stack.back().first) != maximal.end();
    };
    while (!is_maximal() && stack.size() > 1 &&
           tree.parent(stack.back().first) == tree.parent(stack[stack.size() - 2].first)) {
      const auto [right, source] = stack.back();
      stack.pop_back();
      step.merges.emplace_back(stack.back().second, source);
      stack.back().first = tree.parent(right);
      free.insert(source);
    }
    if (is_maximal()) {
      step.complete = Partial{block.rank, stack.back().first, stack.back().second};
      stack.pop_back();  // its buffer stays taken until the step is final
    }
  }
  KINTSUGI_ASSERT(stack.empty());
  return plan;
}

std::vector<Partial> partials_of_layer(const Plan& plan, const Redo& redo, LayerId layer) {
  const LaneTree tree(plan.lanes);
  const StageId stage = plan.stage_of(layer);
  std::vector<Partial> partials;
  for (const CellBlock& block : plan.stages[stage.value].blocks) {
    for (const LaneStep& step : plan_lanes(redo, tree, stage, layer, block).lanes) {
      if (step.complete) partials.push_back(*step.complete);
    }
  }
  std::map<RankId, std::uint32_t> place;
  for (const KeptSum& k : redo.kept()) {
    const std::uint32_t at = place[k.rank]++;
    if (k.sum.layer == layer) partials.push_back({k.rank, k.sum.node, at, true});
  }
  std::sort(partials.begin(), partials.end(),
            [](const Partial& a, const Partial& b) { return a.node.first < b.node.first; });
  return partials;
}

}  // namespace kintsugi
