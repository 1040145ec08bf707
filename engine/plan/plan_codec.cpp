#include "engine/plan/plan_codec.hpp"

#include <algorithm>
#include <vector>

namespace kintsugi {

void write_plan(const Plan& plan, schemas::Plan::Builder out) {
  out.setJob(plan.job.value);
  out.setLineage(plan.lineage.value);
  out.initGeneration().setEpoch(plan.generation.epoch);
  out.getGeneration().setCounter(plan.generation.counter);
  out.setLanes(plan.lanes);
  auto ranks = out.initRanks(plan.rank_count());
  for (unsigned i = 0; i < ranks.size(); ++i) {
    ranks[i].setRank(plan.ranks[i].rank.value);
    ranks[i].setNode(plan.ranks[i].node.value);
  }
  auto stages = out.initStages(static_cast<unsigned>(plan.stages.size()));
  for (unsigned s = 0; s < stages.size(); ++s) {
    stages[s].setFirstLayer(plan.stages[s].layers.first);
    stages[s].setEndLayer(plan.stages[s].layers.end);
    auto blocks = stages[s].initBlocks(static_cast<unsigned>(plan.stages[s].blocks.size()));
    for (unsigned b = 0; b < blocks.size(); ++b) {
      const CellBlock& block = plan.stages[s].blocks[b];
      blocks[b].setRank(block.rank.value);
      blocks[b].setFirstLane(block.lanes.first);
      blocks[b].setEndLane(block.lanes.end);
    }
  }
  auto shards = out.initShards(static_cast<unsigned>(plan.shards.size()));
  for (unsigned i = 0; i < shards.size(); ++i) {
    const ShardHolders& holders = plan.shards[i];
    shards[i].setPrimary(holders.primary.value);
    auto replicas = shards[i].initReplicas(static_cast<unsigned>(holders.replicas.size()));
    for (unsigned r = 0; r < replicas.size(); ++r) replicas.set(r, holders.replicas[r].value);
  }
  out.setReason(plan.reason);
  const Digest digest = plan.digest();
  out.initDigest().setHigh(digest.high);
  out.getDigest().setLow(digest.low);
}

namespace {

// What every user of a plan relies on.
bool is_sound(const Plan& plan) {
  if (plan.ranks.empty()) return false;
  for (std::size_t i = 1; i < plan.ranks.size(); ++i) {
    if (plan.ranks[i].rank <= plan.ranks[i - 1].rank) return false;
  }
  std::uint32_t layer = 0;
  for (const StagePlan& stage : plan.stages) {
    if (stage.layers.first != layer || stage.layers.end <= layer) return false;
    layer = stage.layers.end;
    std::uint32_t lane = 0;
    for (const CellBlock& block : stage.blocks) {
      if (!plan.has(block.rank) || block.lanes.first != lane || block.lanes.end <= lane) return false;
      lane = block.lanes.end;
    }
    if (lane != plan.lanes) return false;
  }
  const auto is_held_once = [&](const ShardHolders& holders) {
    std::vector<RankId> all = holders.replicas;
    all.push_back(holders.primary);
    std::sort(all.begin(), all.end());
    return std::adjacent_find(all.begin(), all.end()) == all.end() &&
           std::all_of(all.begin(), all.end(), [&](RankId r) { return plan.has(r); });
  };
  return !plan.stages.empty() && plan.lanes > 0 && std::all_of(plan.shards.begin(), plan.shards.end(), is_held_once);
}

}  // namespace

Result<Plan> read_plan(schemas::Plan::Reader in) {
  Plan plan;
  plan.job = {in.getJob()};
  plan.lineage = {in.getLineage()};
  plan.generation = {in.getGeneration().getEpoch(), in.getGeneration().getCounter()};
  plan.lanes = in.getLanes();
  for (const auto member : in.getRanks()) plan.ranks.push_back({{member.getRank()}, {member.getNode()}});
  for (const auto stage : in.getStages()) {
    StagePlan s{{stage.getFirstLayer(), stage.getEndLayer()}, {}};
    for (const auto block : stage.getBlocks()) {
      s.blocks.push_back({{block.getRank()}, {block.getFirstLane(), block.getEndLane()}});
    }
    plan.stages.push_back(std::move(s));
  }
  for (const auto shard : in.getShards()) {
    ShardHolders holders{{shard.getPrimary()}, {}};
    for (const std::uint32_t replica : shard.getReplicas()) holders.replicas.push_back({replica});
    plan.shards.push_back(std::move(holders));
  }
  plan.reason = in.getReason().cStr();
  if (plan.digest() != Digest{in.getDigest().getHigh(), in.getDigest().getLow()}) {
    return Error{ErrorAction::fail_link, "a plan arrived that does not match its digest"};
  }
  if (!is_sound(plan)) return Error{ErrorAction::fail_link, "a plan arrived that does not cover its lanes and layers"};
  return plan;
}

}  // namespace kintsugi
