#include "engine/plan/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "base/assert.hpp"
#include "engine/plan/cell_line.hpp"
#include "engine/plan/cell_repair.hpp"
#include "engine/plan/cost.hpp"
#include "engine/plan/partition.hpp"
#include "engine/plan/shard_placer.hpp"

namespace kintsugi {

namespace {

// Of newcomers without a place, one among so many is still a repair.
constexpr std::size_t kWorthRepairing = 8;

// Layers of each stage. The embedding goes with the first block, the head with the last: both need a block beside them.
std::vector<LayerRange> cut_layers(const ModelLayout& layout, const BatchConfig& batch, std::uint32_t stages,
                                   std::vector<double>& stage_costs) {
  const std::uint32_t layers = layout.layer_count();
  std::vector<double> block_costs;
  for (std::uint32_t l = 1; l + 1 < layers; ++l) {
    double cost = layer_flops(layout, {l}, batch.microbatch, batch.length).total();
    if (l == 1) cost += layer_flops(layout, {0}, batch.microbatch, batch.length).total();
    if (l + 2 == layers) cost += layer_flops(layout, {layers - 1}, batch.microbatch, batch.length).total();
    block_costs.push_back(cost);
  }
  std::vector<LayerRange> ranges;
  std::uint32_t first = 0;
  for (const std::uint32_t end : balanced_partition(block_costs, stages)) {
    stage_costs.push_back(std::accumulate(block_costs.begin() + first, block_costs.begin() + end, 0.0));
    ranges.push_back({first == 0 ? 0 : first + 1, end == block_costs.size() ? layers : end + 1});
    first = end;
  }
  return ranges;
}

// The ranks in the order in which neighbouring cells are given out: those of one node together.
std::vector<RankId> neighbours_together(std::vector<PlanMember> members) {
  std::sort(members.begin(), members.end(), [](const PlanMember& a, const PlanMember& b) {
    return std::tie(a.node, a.rank) < std::tie(b.node, b.rank);
  });
  std::vector<RankId> order;
  for (const PlanMember& m : members) order.push_back(m.rank);
  return order;
}

std::vector<PlanMember> working(std::vector<PlanMember> members) {
  std::erase_if(members, [](const PlanMember& m) { return m.idle; });
  return members;
}

struct Cells {
  CellPieces pieces;
  std::string reason;
  ShardsKept shards = ShardsKept::none;
};

Cells cells_from_nothing(const CellLine& line, const std::vector<PlanMember>& workers) {
  const std::vector<RankId> order = neighbours_together(workers);
  CellPieces whole = whole_stages(line, order);
  CellPieces even = even_cut(line, order);
  const double gain = busiest_load(line, whole) / busiest_load(line, even);
  std::string reason = fmt::format(
      "{} ranks, {} stages, {} lanes: {}; the busiest rank of whole stages would have {:.2f} times "
      "the work of the busiest of an even cut",
      order.size(), line.stage_costs.size(), line.lanes, gain > kWorthSharing ? "cells cut evenly" : "whole stages",
      gain);
  return {gain > kWorthSharing ? std::move(even) : std::move(whole), std::move(reason)};
}

bool is_of_shape(const Plan& plan, const CellLine& line, const ModelLayout& layout) {
  return plan.lanes == line.lanes && plan.stages.size() == line.stage_costs.size() &&
         plan.shards.size() == layout.shards().size();
}

Cells choose_cells(const CellLine& line, const Plan* in_force, const std::vector<PlanMember>& workers) {
  const std::optional<CellPieces> before = in_force == nullptr ? std::nullopt : pieces_of(*in_force);
  if (!before) return cells_from_nothing(line, workers);
  CellRepair repair = repair_cells(line, *before, *in_force, workers);
  const double busiest = busiest_load(line, repair.pieces);
  // Most often it is plain that no plan can be much better.
  const bool is_plain = busiest <= kWorthReplanning * line.least_load(static_cast<std::uint32_t>(workers.size()));
  const bool are_many = repair.newcomers > before->size() / kWorthRepairing;
  if (are_many || !is_plain) {
    Cells anew = cells_from_nothing(line, workers);
    const double gain = busiest / busiest_load(line, anew.pieces);
    if (are_many || gain > kWorthReplanning) {
      anew.reason +=
          are_many ? fmt::format("; made from nothing, as {} of {} ranks are new", repair.newcomers, workers.size())
                   : fmt::format(
                         "; made from nothing, as the busiest rank of a repair would have {:.2f} "
                         "times the work",
                         gain);
      return anew;
    }
  }
  std::string reason = fmt::format("{} ranks, {} stages, {} lanes: repaired, {} ranks work other cells than before",
                                   workers.size(), line.stage_costs.size(), line.lanes, repair.changed);
  if (repair.taken > 0) reason += fmt::format(", {} places were taken as they were", repair.taken);
  return {std::move(repair.pieces), std::move(reason), repair.newcomers > 0 ? ShardsKept::fair : ShardsKept::all};
}

}  // namespace

Result<Plan> make_plan(const PlanRequest& request, const JobConfig& job, const ModelLayout& layout) {
  const std::vector<PlanMember> workers = working(request.members);
  const std::uint32_t ranks = static_cast<std::uint32_t>(workers.size());
  CellLine line{{}, static_cast<std::uint32_t>(job.batch.lanes)};
  KINTSUGI_ASSERT(ranks > 0 && line.lanes > 0);
  // auto: one stage; more only pay when a model does not fit a rank, which the memory estimate will decide.
  const std::uint32_t stages = static_cast<std::uint32_t>(job.parallel.stages.value_or(1));
  if (ranks > stages * line.lanes) {
    return Error{
        ErrorAction::tell_user,
        fmt::format("{} ranks but only {} cells ({} stages x {} lanes) to work: use at most {} ranks, or raise "
                    "batch.lanes or parallel.stages",
                    ranks, stages * line.lanes, stages, line.lanes, stages * line.lanes)};
  }
  Plan plan{request.job, request.lineage, request.generation, line.lanes, {}, {}, {}, {}};
  for (const PlanMember& member : request.members) plan.ranks.push_back({member.rank, member.node});
  const std::vector<LayerRange> ranges = cut_layers(layout, job.batch, stages, line.stage_costs);
  const bool fits = request.in_force != nullptr && is_of_shape(*request.in_force, line, layout);
  Cells cells = choose_cells(line, fits ? request.in_force : nullptr, workers);
  std::vector<std::vector<CellBlock>> blocks = blocks_of(line, cells.pieces);
  for (std::uint32_t s = 0; s < stages; ++s) plan.stages.push_back({ranges[s], std::move(blocks[s])});
  ShardPlacer placer(request, plan, layout, static_cast<std::size_t>(job.resilience.replicas), cells.shards);
  plan.shards = placer.run();
  plan.reason = std::move(cells.reason);
  if (cells.shards != ShardsKept::none) plan.reason += fmt::format(", {} copies of shards are placed", placer.placed());
  return plan;
}

}  // namespace kintsugi
