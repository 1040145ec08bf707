#include "engine/plan/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/units.hpp"
#include "engine/plan/cost.hpp"

namespace kintsugi {

std::vector<std::uint32_t> balanced_partition(const std::vector<double>& costs, std::uint32_t parts) {
  const std::size_t n = costs.size();
  KINTSUGI_ASSERT(parts > 0 && parts <= n);
  std::vector<double> prefix(n + 1, 0.0);
  std::partial_sum(costs.begin(), costs.end(), prefix.begin() + 1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // best[p][i]: the least maximum for items i.. in p pieces; end[p][i]: where its first piece ends.
  std::vector<std::vector<double>> best(parts + 1, std::vector<double>(n + 1, kInfinity));
  std::vector<std::vector<std::uint32_t>> end(parts + 1, std::vector<std::uint32_t>(n + 1, 0));
  best[0][n] = 0.0;
  for (std::uint32_t p = 1; p <= parts; ++p) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = i + 1; j <= n; ++j) {
        const double cost = std::max(prefix[j] - prefix[i], best[p - 1][j]);
        if (cost < best[p][i]) {
          best[p][i] = cost;
          end[p][i] = static_cast<std::uint32_t>(j);
        }
      }
    }
  }
  std::vector<std::uint32_t> ends;
  std::size_t at = 0;
  for (std::uint32_t p = parts; p > 0; --p) {
    at = end[p][at];
    ends.push_back(static_cast<std::uint32_t>(at));
  }
  KINTSUGI_ASSERT(at == n);
  return ends;
}

namespace {

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

using Blocks = std::vector<std::vector<CellBlock>>;  // by stage

double busiest(const Blocks& blocks, const std::vector<double>& stage_costs, std::uint32_t ranks) {
  std::vector<double> load(ranks, 0.0);
  for (std::size_t s = 0; s < blocks.size(); ++s) {
    for (const CellBlock& b : blocks[s]) load[b.rank.value] += stage_costs[s] * b.lanes.count();
  }
  return *std::max_element(load.begin(), load.end());
}

// Near-equal contiguous lanes for `ranks` ranks from `first_rank`.
std::vector<CellBlock> cut_lanes(std::uint32_t lanes, std::uint32_t first_rank, std::uint32_t ranks) {
  std::vector<CellBlock> blocks;
  std::uint32_t lane = 0;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const std::uint32_t count = lanes / ranks + (r < lanes % ranks ? 1 : 0);
    blocks.push_back({{first_rank + r}, {lane, lane + count}});
    lane += count;
  }
  return blocks;
}

// Every rank in one stage, or every stage in one rank.
Blocks whole_stages(const std::vector<double>& stage_costs, std::uint32_t ranks, std::uint32_t lanes) {
  const std::uint32_t stages = static_cast<std::uint32_t>(stage_costs.size());
  Blocks blocks;
  if (ranks < stages) {
    const std::vector<std::uint32_t> ends = balanced_partition(stage_costs, ranks);
    std::uint32_t rank = 0;
    for (std::uint32_t s = 0; s < stages; ++s) {
      if (s >= ends[rank]) ++rank;
      blocks.push_back({{{rank}, {0, lanes}}});
    }
    return blocks;
  }
  std::vector<std::uint32_t> members(stages, 1);
  for (std::uint32_t spare = ranks - stages; spare > 0; --spare) {
    std::uint32_t neediest = stages;
    double most = -1.0;
    for (std::uint32_t s = 0; s < stages; ++s) {
      const double load = stage_costs[s] * static_cast<double>(ceil_div(lanes, members[s]));
      if (members[s] < lanes && load > most) {
        most = load;
        neediest = s;
      }
    }
    ++members[neediest];
  }
  std::uint32_t rank = 0;
  for (std::uint32_t s = 0; s < stages; ++s) {
    blocks.push_back(cut_lanes(lanes, rank, members[s]));
    rank += members[s];
  }
  return blocks;
}

// The line of cells, stage after stage and lane after lane, in `ranks` pieces of near-equal cost.
Blocks cut_line(const std::vector<double>& stage_costs, std::uint32_t ranks, std::uint32_t lanes) {
  std::vector<double> costs;
  for (const double cost : stage_costs) costs.insert(costs.end(), lanes, cost);
  Blocks blocks(stage_costs.size());
  std::uint32_t first = 0;
  std::uint32_t rank = 0;
  for (const std::uint32_t end : balanced_partition(costs, ranks)) {
    for (std::uint32_t s = first / lanes; s * lanes < end; ++s) {
      const std::uint32_t from = std::max(first, s * lanes) - s * lanes;
      const std::uint32_t to = std::min(end, (s + 1) * lanes) - s * lanes;
      blocks[s].push_back({{rank}, {from, to}});
    }
    first = end;
    ++rank;
  }
  return blocks;
}

std::vector<RankId> place_shards(const Plan& plan, const ModelLayout& layout) {
  std::vector<std::int64_t> load(plan.rank_count(), 0);
  std::vector<RankId> primaries;
  for (const Shard& shard : layout.shards()) {
    RankId choice{plan.rank_count()};
    for (const LayerId use : layout.group(shard.group).uses) {
      for (const RankId rank : plan.ranks_of_layer(use)) {
        const bool better = choice.value == plan.rank_count() || load[rank.value] < load[choice.value] ||
                            (load[rank.value] == load[choice.value] && rank < choice);
        if (better) choice = rank;
      }
    }
    load[choice.value] += shard.count;
    primaries.push_back(choice);
  }
  return primaries;
}

}  // namespace

Result<Plan> make_plan(const PlanRequest& request, const JobConfig& job, const ModelLayout& layout) {
  const std::uint32_t ranks = static_cast<std::uint32_t>(request.rank_nodes.size());
  const std::uint32_t lanes = static_cast<std::uint32_t>(job.batch.lanes);
  KINTSUGI_ASSERT(ranks > 0 && lanes > 0);
  // auto: one stage; more only pay when a model does not fit a rank, which the memory estimate will decide.
  const std::uint32_t stages = static_cast<std::uint32_t>(job.parallel.stages.value_or(1));
  if (ranks > stages * lanes) {
    return Error{
        ErrorAction::tell_user,
        fmt::format("{} ranks but only {} cells ({} stages x {} lanes) to work: use at most {} ranks, or raise "
                    "batch.lanes or parallel.stages",
                    ranks, stages * lanes, stages, lanes, stages * lanes)};
  }
  Plan plan{request.job, request.lineage, request.generation, lanes, request.rank_nodes, {}, {}, {}};
  std::vector<double> stage_costs;
  const std::vector<LayerRange> ranges = cut_layers(layout, job.batch, stages, stage_costs);
  const Blocks whole = whole_stages(stage_costs, ranks, lanes);
  const Blocks line = cut_line(stage_costs, ranks, lanes);
  const double gain = busiest(whole, stage_costs, ranks) / busiest(line, stage_costs, ranks);
  const Blocks& chosen = gain > kWorthSharing ? line : whole;
  for (std::uint32_t s = 0; s < stages; ++s) plan.stages.push_back({ranges[s], chosen[s]});
  plan.shard_primaries = place_shards(plan, layout);
  plan.reason = fmt::format(
      "{} ranks, {} stages, {} lanes: {}; the busiest rank of whole stages would have {:.2f} times "
      "the work of the busiest of an even cut",
      ranks, stages, lanes, gain > kWorthSharing ? "cells cut evenly" : "whole stages", gain);
  return plan;
}

}  // namespace kintsugi
