#include "engine/plan/redo.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <tuple>

#include "base/assert.hpp"

namespace kintsugi {

Redo::Redo(const Plan& plan, std::vector<KeptSum> kept)
    : kept_(std::move(kept)), lowest_(plan.lanes), stages_(static_cast<std::uint32_t>(plan.stages.size())) {
  KINTSUGI_ASSERT(std::is_sorted(kept_.begin(), kept_.end()));
  keeper_.resize(plan.stages.back().layers.end);
  for (const KeptSum& k : kept_) {
    auto& of_layer = keeper_.at(k.sum.layer.value);
    of_layer.resize(plan.lanes);
    KINTSUGI_ASSERT_MSG(LaneTree(plan.lanes).contains(k.sum.node), "a sum over a subtree of the job's lanes");
    for (std::uint32_t lane = k.sum.node.first; lane < k.sum.node.end(); ++lane) {
      KINTSUGI_ASSERT_MSG(!of_layer[lane], "a lane's gradient is kept once");
      of_layer[lane] = k.rank;
    }
  }
  for (std::uint32_t lane = 0; lane < plan.lanes; ++lane) {
    const auto lost = [&](const StagePlan& stage) {
      for (std::uint32_t l = stage.layers.first; l < stage.layers.end; ++l) {
        if (sums({l}, {lane})) return true;
      }
      return false;
    };
    const auto lowest = std::find_if(plan.stages.begin(), plan.stages.end(), lost);
    lowest_[lane] = static_cast<std::uint32_t>(lowest - plan.stages.begin());
  }
}

std::optional<RankId> Redo::keeper(LayerId layer, LaneId lane) const {
  const auto& of_layer = keeper_.at(layer.value);
  return of_layer.empty() ? std::nullopt : of_layer[lane.value];
}

std::vector<LaneId> Redo::lanes() const {
  std::vector<LaneId> all;
  for (std::uint32_t lane = 0; lane < lowest_.size(); ++lane) {
    if (runs_forward({lane})) all.push_back({lane});
  }
  return all;
}

namespace {

// By layer, each in the order that `before` gives. Whoever reports tells of its lanes in order, and ranks follow each other
// along the lanes: most often a layer needs no sorting.
template <class Before>
std::vector<KeptSum> by_layer(const std::vector<KeptSum>& sums, const Before& before) {
  std::vector<std::size_t> end;  // by layer; at first where its sums begin
  for (const KeptSum& k : sums) {
    if (end.size() <= k.sum.layer.value + 1) end.resize(k.sum.layer.value + 2, 0);
    ++end[k.sum.layer.value + 1];
  }
  for (std::size_t l = 1; l < end.size(); ++l) end[l] += end[l - 1];
  std::vector<KeptSum> sorted(sums.size());
  for (const KeptSum& k : sums) sorted[end[k.sum.layer.value]++] = k;
  auto first = sorted.begin();
  for (std::size_t l = 0; l + 1 < end.size(); ++l) {
    const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(end[l]);
    if (!std::is_sorted(first, last, before)) std::sort(first, last, before);
    first = last;
  }
  return sorted;
}

}  // namespace

std::vector<KeptSum> choose_sums(const Plan& plan, std::vector<KeptSum> found) {
  found = by_layer(found, [](const KeptSum& a, const KeptSum& b) {
    return std::tuple(b.sum.node.count, a.sum.node.first, a.rank) <
           std::tuple(a.sum.node.count, b.sum.node.first, b.rank);
  });
  std::vector<KeptSum> chosen;
  std::vector<bool> taken;  // by lane, of one layer
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (i == 0 || found[i].sum.layer != found[i - 1].sum.layer) taken.assign(plan.lanes, false);
    const auto first = taken.begin() + found[i].sum.node.first;
    const auto end = taken.begin() + found[i].sum.node.end();
    if (std::find(first, end, true) != end) continue;
    std::fill(first, end, true);
    chosen.push_back(found[i]);
  }
  chosen = by_layer(chosen, std::less<KeptSum>());
  // Backward gives anew what lies above the lowest loss of a lane.
  const Redo redo(plan, chosen);
  std::erase_if(chosen, [&](const KeptSum& k) {
    const StageId stage = plan.stage_of(k.sum.layer);
    for (std::uint32_t lane = k.sum.node.first; lane < k.sum.node.end(); ++lane) {
      if (!redo.runs_backward(stage, {lane})) return false;
    }
    return true;
  });
  return chosen;
}

}  // namespace kintsugi
