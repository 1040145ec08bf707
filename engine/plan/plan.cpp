#include "engine/plan/plan.hpp"

#include "base/assert.hpp"

namespace kintsugi {

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
  std::vector<RankId> ranks;
  for (const CellBlock& block : stages[stage_of(layer).value].blocks) ranks.push_back(block.rank);
  return ranks;
}

std::uint64_t Plan::cells_of(RankId rank) const {
  std::uint64_t cells = 0;
  for (std::uint32_t s = 0; s < stages.size(); ++s) cells += lanes_of({s}, rank).count();
  return cells;
}

Digest Plan::digest() const {
  Hasher hasher;
  hasher.update_u64(job.value);
  hasher.update_u64(lineage.value);
  hasher.update_u64(generation.epoch);
  hasher.update_u64(generation.counter);
  hasher.update_u64(lanes);
  hasher.update_u64(rank_nodes.size());
  for (const NodeId node : rank_nodes) hasher.update_u64(node.value);
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
  hasher.update_u64(shard_primaries.size());
  for (const RankId rank : shard_primaries) hasher.update_u64(rank.value);
  return hasher.finish();
}

}  // namespace kintsugi
