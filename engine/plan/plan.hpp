// A plan: the immutable table of who owns what in one generation (DESIGN 3.1). No code asks how many ranks there are to
// decide what to compute; it asks the plan which rank works a cell and which rank holds a shard.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/digest.hpp"
#include "base/ids.hpp"
#include "base/lane_tree.hpp"
#include "base/short_list.hpp"

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

// A member of the generation and where it runs.
struct PlanRank {
  RankId rank;
  NodeId node;
  auto operator<=>(const PlanRank&) const = default;
};

// Who holds a shard: one primary, which takes its gradients and publishes its weights, and replicas, which apply the same
// updates to copies of their own.
using FewRanks = ShortList<RankId, 4>;
struct ShardHolders {
  RankId primary;
  FewRanks replicas;
  bool has(RankId rank) const;
  bool operator==(const ShardHolders&) const = default;
};

struct Plan {
  JobId job;
  Lineage lineage;
  Generation generation;
  std::uint32_t lanes = 0;
  std::vector<PlanRank> ranks;       // ascending; the first is the root of the control tree
  std::vector<StagePlan> stages;     // by StageId
  std::vector<ShardHolders> shards;  // by ShardId
  std::string reason;                // why the planner chose it, for people

  std::uint32_t rank_count() const { return static_cast<std::uint32_t>(ranks.size()); }
  // Ranks are nearly their places in `ranks`: this and the next cost the logarithm of the numbers that are missing.
  bool has(RankId rank) const;
  // Asserts that the rank is a member.
  NodeId node_of(RankId rank) const;
  RankId root() const { return ranks.front().rank; }
  RankId primary_of(ShardId shard) const { return shards.at(shard.value).primary; }
  // The least number of nodes that hold a shard: what a commit under this plan survives the loss of, less one.
  std::uint16_t failure_domains() const;
  // The rank that works cell (stage, lane), in the logarithm of the stage's blocks.
  RankId rank_of(StageId stage, LaneId lane) const;
  StageId stage_of(LayerId layer) const;
  // The lanes `rank` works in `stage`; empty if none. A pass over the stage's blocks.
  LaneRange lanes_of(StageId stage, RankId rank) const;
  // Ranks that work any cell of `layer`'s stage, in lane order.
  std::vector<RankId> ranks_of_layer(LayerId layer) const;
  std::uint64_t cells_of(RankId rank) const;
  // It works no cell and holds no shard.
  bool is_idle(RankId rank) const;
  // All those, ascending, in one pass over the plan.
  std::vector<RankId> idle_ranks() const;
  // Over everything but the reason: two members with equal digests act on the same table.
  Digest digest() const;
  bool operator==(const Plan&) const = default;
};

}  // namespace kintsugi
