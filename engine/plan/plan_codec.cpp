#include "engine/plan/plan_codec.hpp"

#include <algorithm>

namespace kintsugi {

void write_plan(const Plan& plan, schemas::Plan::Builder out) {
  out.setJob(plan.job.value);
  out.setLineage(plan.lineage.value);
  out.initGeneration().setEpoch(plan.generation.epoch);
  out.getGeneration().setCounter(plan.generation.counter);
  out.setLanes(plan.lanes);
  auto nodes = out.initRankNodes(plan.rank_count());
  for (unsigned i = 0; i < nodes.size(); ++i) nodes.set(i, plan.rank_nodes[i].value);
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
  auto primaries = out.initShardPrimaries(static_cast<unsigned>(plan.shard_primaries.size()));
  for (unsigned i = 0; i < primaries.size(); ++i) primaries.set(i, plan.shard_primaries[i].value);
  out.setReason(plan.reason);
  const Digest digest = plan.digest();
  out.initDigest().setHigh(digest.high);
  out.getDigest().setLow(digest.low);
}

namespace {

// What every user of a plan relies on.
bool is_sound(const Plan& plan) {
  std::uint32_t layer = 0;
  for (const StagePlan& stage : plan.stages) {
    if (stage.layers.first != layer || stage.layers.end <= layer) return false;
    layer = stage.layers.end;
    std::uint32_t lane = 0;
    for (const CellBlock& block : stage.blocks) {
      if (block.rank.value >= plan.rank_count() || block.lanes.first != lane || block.lanes.end <= lane) return false;
      lane = block.lanes.end;
    }
    if (lane != plan.lanes) return false;
  }
  return !plan.stages.empty() && plan.lanes > 0 &&
         std::all_of(plan.shard_primaries.begin(), plan.shard_primaries.end(),
                     [&](RankId r) { return r.value < plan.rank_count(); });
}

}  // namespace

Result<Plan> read_plan(schemas::Plan::Reader in) {
  Plan plan;
  plan.job = {in.getJob()};
  plan.lineage = {in.getLineage()};
  plan.generation = {in.getGeneration().getEpoch(), in.getGeneration().getCounter()};
  plan.lanes = in.getLanes();
  for (const std::uint32_t node : in.getRankNodes()) plan.rank_nodes.push_back({node});
  for (const auto stage : in.getStages()) {
    StagePlan s{{stage.getFirstLayer(), stage.getEndLayer()}, {}};
    for (const auto block : stage.getBlocks()) {
      s.blocks.push_back({{block.getRank()}, {block.getFirstLane(), block.getEndLane()}});
    }
    plan.stages.push_back(std::move(s));
  }
  for (const std::uint32_t rank : in.getShardPrimaries()) plan.shard_primaries.push_back({rank});
  plan.reason = in.getReason().cStr();
  if (plan.digest() != Digest{in.getDigest().getHigh(), in.getDigest().getLow()}) {
    return Error{ErrorAction::fail_link, "a plan arrived that does not match its digest"};
  }
  if (!is_sound(plan)) return Error{ErrorAction::fail_link, "a plan arrived that does not cover its lanes and layers"};
  return plan;
}

}  // namespace kintsugi
