#include "engine/plan/plan.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "base/assert.hpp"

namespace kintsugi {

bool ShardHolders::has(RankId rank) const {
  return primary == rank || std::find(replicas.begin(), replicas.end(), rank) != replicas.end();
}

bool Plan::has(RankId rank) const {
  return std::any_of(ranks.begin(), ranks.end(), [&](const PlanRank& r) { return r.rank == rank; });
}

NodeId Plan::node_of(RankId rank) const {
  for (const PlanRank& r : ranks) {
    if (r.rank == rank) return r.node;
  }
  KINTSUGI_UNREACHABLE();
}

std::uint16_t Plan::failure_domains() const {
  std::size_t least = std::numeric_limits<std::uint16_t>::max();
  for (const ShardHolders& holders : shards) {
    std::set<NodeId> nodes{node_of(holders.primary)};
    for (const RankId replica : holders.replicas) nodes.insert(node_of(replica));
    least = std::min(least, nodes.size());
  }
  return static_cast<std::uint16_t>(least);
}

RankId Plan::rank_of(StageId stage, LaneId lane) const {
  for (const CellBlock& block : stages.at(stage.value).blocks) {
    if (block.lanes.contains(lane)) return block.rank;
  }
  KINTSUGI_UNREACHABLE();
}

StageId Plan::stage_of(LayerId layer) const {
  for (std::uint32_t s = 0; s < stages.size(); ++s) {
    if (layer.value >= stages[s].layers.first && layer.value < stages[s].layers.end) return {s};
  }
  KINTSUGI_UNREACHABLE();
}

LaneRange Plan::lanes_of(StageId stage, RankId rank) const {
  for (const CellBlock& block : stages.at(stage.value).blocks) {
    if (block.rank == rank) return block.lanes;
  }
  return {};
}

std::vector<RankId> Plan::ranks_of_layer(LayerId layer) const {
  std::vector<RankId> workers;
  for (const CellBlock& block : stages[stage_of(layer).value].blocks) workers.push_back(block.rank);
  return workers;
}

std::uint64_t Plan::cells_of(RankId rank) const {
  std::uint64_t cells = 0;
  for (std::uint32_t s = 0; s < stages.size(); ++s) cells += lanes_of({s}, rank).count();
  return cells;
}

bool Plan::is_idle(RankId rank) const {
  return cells_of(rank) == 0 &&
         std::none_of(shards.begin(), shards.end(), [&](const ShardHolders& h) { return h.has(rank); });
}

Digest Plan::digest() const {
  Hasher hasher;
  hasher.update_u64(job.value);
  hasher.update_u64(lineage.value);
  hasher.update_u64(generation.epoch);
  hasher.update_u64(generation.counter);
  hasher.update_u64(lanes);
  hasher.update_u64(ranks.size());
  for (const PlanRank& r : ranks) {
    hasher.update_u64(r.rank.value);
    hasher.update_u64(r.node.value);
  }
  hasher.update_u64(stages.size());
  for (const StagePlan& stage : stages) {
    hasher.update_u64(stage.layers.first);
    hasher.update_u64(stage.layers.end);
    hasher.update_u64(stage.blocks.size());
    for (const CellBlock& block : stage.blocks) {
      hasher.update_u64(block.rank.value);
      hasher.update_u64(block.lanes.first);
      hasher.update_u64(block.lanes.end);
    }
  }
  hasher.update_u64(shards.size());
  for (const ShardHolders& holders : shards) {
    hasher.update_u64(holders.primary.value);
    hasher.update_u64(holders.replicas.size());
    for (const RankId replica : holders.replicas) hasher.update_u64(replica.value);
  }
  return hasher.finish();
}

}  // namespace kintsugi
