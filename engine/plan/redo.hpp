// What a step that a fault interrupted still needs (DESIGN 6.2, promise C3). A partial sum of a layer over a subtree of lanes
// depends on the weights alone: it is as good under any plan, whatever became of ranks and stages. So the step is finished
// from the sums that are left and from the lanes that are not, and every rank derives who does what from the same two tables.
//
// Nothing is kept between stages. A lane that lost the sum of any layer runs forward through every stage, and backward
// from the last stage down to the lowest that lost one; sums that it still has are used, what is computed again is not.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/plan/plan.hpp"

namespace kintsugi {

// The gradient of one layer's parameters, summed over the lanes of `node`: all their microbatches, none missing.
struct LayerSum {
  LayerId layer;
  TreeNode node;
  auto operator<=>(const LayerSum&) const = default;
};

// That of the head layer brings the losses of its lanes.
struct KeptSum {
  LayerSum sum;
  RankId rank;  // that has it, and sends it
  auto operator<=>(const KeptSum&) const = default;
};

class Redo {
 public:
  // `kept`: by layer, then lane; disjoint, and within the job (asserted). None: the whole step.
  explicit Redo(const Plan& plan, std::vector<KeptSum> kept = {});

  const std::vector<KeptSum>& kept() const { return kept_; }
  // Whose sum of `layer` covers `lane`.
  std::optional<RankId> keeper(LayerId layer, LaneId lane) const;
  bool runs_forward(LaneId lane) const { return lowest_[lane.value] < stages_; }
  bool runs_backward(StageId stage, LaneId lane) const { return stage.value >= lowest_[lane.value]; }
  // The gradient enters a new partial sum of `layer`.
  bool sums(LayerId layer, LaneId lane) const { return !keeper(layer, lane); }
  // Those that run forward, ascending.
  std::vector<LaneId> lanes() const;

 private:
  std::vector<KeptSum> kept_;
  std::vector<std::vector<std::optional<RankId>>> keeper_;  // by layer, by lane; empty: nothing is kept of the layer
  std::vector<std::uint32_t> lowest_;                       // by lane: the lowest stage that lost a sum, or stages_
  std::uint32_t stages_;
};

// Of sums that ranks have, those that the step needs: disjoint in each layer, the largest first, and none that saves no
// work under `plan`.
std::vector<KeptSum> choose_sums(const Plan& plan, std::vector<KeptSum> found);

}  // namespace kintsugi
