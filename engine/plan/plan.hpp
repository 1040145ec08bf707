// A plan: the immutable table of who owns what in one generation (DESIGN 3.1). No code asks how many ranks there are to
// decide what to compute; it asks the plan which rank works a cell and which rank holds a shard.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/digest.hpp"
#include "base/ids.hpp"
#include "base/lane_tree.hpp"

namespace kintsugi {

struct LayerRange {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  auto operator<=>(const LayerRange&) const = default;
};

struct LaneRange {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  std::uint32_t count() const { return end - first; }
  bool contains(LaneId lane) const { return lane.value >= first && lane.value < end; }
  auto operator<=>(const LaneRange&) const = default;
};

// Cells (stage, lanes) worked by one rank. A rank has at most one block in a stage.
struct CellBlock {
  RankId rank;
  LaneRange lanes;
  auto operator<=>(const CellBlock&) const = default;
};

struct StagePlan {
  LayerRange layers;
  std::vector<CellBlock> blocks;  // in lane order; together exactly lanes 0..L-1
  bool operator==(const StagePlan&) const = default;
};

struct Plan {
  JobId job;
  Lineage lineage;
  Generation generation;
  std::uint32_t lanes = 0;
  std::vector<NodeId> rank_nodes;       // by RankId
  std::vector<StagePlan> stages;        // by StageId
  std::vector<RankId> shard_primaries;  // by ShardId
  std::string reason;                   // why the planner chose it, for people

  std::uint32_t rank_count() const { return static_cast<std::uint32_t>(rank_nodes.size()); }
  // The rank that works cell (stage, lane).
  RankId rank_of(StageId stage, LaneId lane) const;
  StageId stage_of(LayerId layer) const;
  // The lanes `rank` works in `stage`; empty if none.
  LaneRange lanes_of(StageId stage, RankId rank) const;
  // Ranks that work any cell of `layer`'s stage, in lane order.
  std::vector<RankId> ranks_of_layer(LayerId layer) const;
  std::uint64_t cells_of(RankId rank) const;
  // Over everything but the reason: two members with equal digests act on the same table.
  Digest digest() const;
  bool operator==(const Plan&) const = default;
};

}  // namespace kintsugi
