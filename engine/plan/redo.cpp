#include "engine/plan/redo.hpp"

#include <algorithm>
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

std::vector<KeptSum> choose_sums(const Plan& plan, std::vector<KeptSum> found) {
  std::sort(found.begin(), found.end(), [](const KeptSum& a, const KeptSum& b) {
    return std::tuple(a.sum.layer, b.sum.node.count, a.sum.node.first, a.rank) <
           std::tuple(b.sum.layer, a.sum.node.count, b.sum.node.first, b.rank);
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
  std::sort(chosen.begin(), chosen.end());
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
