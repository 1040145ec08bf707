// How ranks sum their lanes: which buffer each lane's gradient starts in, what is added when a lane ends, and which
// maximal subtree is then complete. A function of the plan and of what a step computes, so receivers derive it, too.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "engine/plan/redo.hpp"

namespace kintsugi {

// One partial sum of a layer: whose it is and what it covers.
struct Partial {
  RankId rank;
  TreeNode node;
  std::uint32_t buffer = 0;  // at its rank; of a kept sum, its place among those that the rank keeps
  bool kept = false;
  bool operator==(const Partial&) const = default;
};

struct LaneStep {
  std::uint32_t buffer = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> merges;  // buffer += source, in order
  std::optional<Partial> complete;
};

struct LanePlan {
  std::vector<LaneStep> lanes;  // of the block, in order; those that do not run backward say nothing
  std::uint32_t buffers = 0;
};

// `block`: of `stage`, of `layer`. A gradient that is kept already is computed into a buffer that nobody reads.
LanePlan plan_lanes(const Redo& redo, const LaneTree& tree, StageId stage, LayerId layer, const CellBlock& block);

// Every partial sum of `layer`, in lane order: what a primary adds, and how a sender keeps it.
std::vector<Partial> partials_of_layer(const Plan& plan, const Redo& redo, LayerId layer);

}  // namespace kintsugi
