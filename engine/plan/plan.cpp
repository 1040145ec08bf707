#include "engine/plan/plan.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "base/assert.hpp"
#include "engine/plan/rank_index.hpp"

namespace kintsugi {

bool ShardHolders::has(RankId rank) const {
  return primary == rank || std::find(replicas.begin(), replicas.end(), rank) != replicas.end();
}

namespace {

std::optional<std::size_t> place_in(const std::vector<PlanRank>& ranks, RankId rank) {
  return place_of(rank, ranks, [](const PlanRank& r) { return r.rank; });
}

}  // namespace

bool Plan::has(RankId rank) const {
  return place_in(ranks, rank).has_value();
}

NodeId Plan::node_of(RankId rank) const {
  const std::optional<std::size_t> at = place_in(ranks, rank);
  KINTSUGI_ASSERT_MSG(at.has_value(), "a rank that is no member of the plan");
  return ranks[*at].node;
}

std::uint16_t Plan::failure_domains() const {
  std::size_t least = std::numeric_limits<std::uint16_t>::max();
  std::vector<NodeId> nodes;
  for (const ShardHolders& holders : shards) {
    nodes.assign(1, node_of(holders.primary));
    for (const RankId replica : holders.replicas) {
      const NodeId node = node_of(replica);
      if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
    }
    least = std::min(least, nodes.size());
  }
  return static_cast<std::uint16_t>(least);
}

RankId Plan::rank_of(StageId stage, LaneId lane) const {
  const std::vector<CellBlock>& blocks = stages.at(stage.value).blocks;
  const auto at = std::partition_point(blocks.begin(), blocks.end(),
                                       [&](const CellBlock& block) { return block.lanes.end <= lane.value; });
  KINTSUGI_ASSERT_MSG(at != blocks.end() && at->lanes.contains(lane), "a cell that the plan does not have");
  return at->rank;
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

std::vector<RankId> Plan::idle_ranks() const {
  std::vector<bool> is_busy(ranks.size(), false);
  const auto mark = [&](RankId rank) {
    if (const auto at = place_in(ranks, rank)) is_busy[*at] = true;
  };
  for (const StagePlan& stage : stages) {
    for (const CellBlock& block : stage.blocks) mark(block.rank);
  }
  for (const ShardHolders& holders : shards) {
    mark(holders.primary);
    for (const RankId replica : holders.replicas) mark(replica);
  }
  std::vector<RankId> idle;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!is_busy[i]) idle.push_back(ranks[i].rank);
  }
  return idle;
}

namespace {

// Of many words: a hasher takes them by the block.
class WordHasher {
 public:
  void update_u64(std::uint64_t word) {
    words_[count_++] = word;
    if (count_ == words_.size()) flush();
  }
  Digest finish() {
    flush();
    return hasher_.finish();
  }

 private:
  void flush() { hasher_.update(words_.data(), std::exchange(count_, 0) * sizeof(std::uint64_t)); }
  Hasher hasher_;
  std::array<std::uint64_t, 512> words_;
  std::size_t count_ = 0;
};

}  // namespace

Digest Plan::digest() const {
  WordHasher hasher;
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
