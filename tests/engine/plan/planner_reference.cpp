// The planner by its definition: every choice weighs everybody. What the fast one must agree with, plan for plan.
#include "tests/engine/plan/planner_reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/units.hpp"
#include "engine/plan/cost.hpp"

namespace kintsugi::testing {

std::vector<std::uint32_t> reference_partition(const std::vector<double>& costs, std::uint32_t parts) {
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
  for (const std::uint32_t end : reference_partition(block_costs, stages)) {
    stage_costs.push_back(std::accumulate(block_costs.begin() + first, block_costs.begin() + end, 0.0));
    ranges.push_back({first == 0 ? 0 : first + 1, end == block_costs.size() ? layers : end + 1});
    first = end;
  }
  return ranges;
}

using Blocks = std::vector<std::vector<CellBlock>>;  // by stage; here a rank is its place among the members

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
    const std::vector<std::uint32_t> ends = reference_partition(stage_costs, ranks);
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
  for (const std::uint32_t end : reference_partition(costs, ranks)) {
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

// Deals out shards one after the other, by what each member holds so far.
class ShardPlacer {
 public:
  ShardPlacer(const PlanRequest& request, const Plan& plan, const ModelLayout& layout, std::size_t copies)
      : request_(request),
        plan_(plan),
        layout_(layout),
        holders_(working(request.members)),
        replicas_(std::min(copies, holders_.size()) - 1),
        fair_share_(static_cast<double>(layout.parameter_count()) / static_cast<double>(holders_.size())) {}

  std::vector<ShardHolders> run() {
    std::vector<ShardHolders> all;
    for (const Shard& shard : layout_.shards()) all.push_back({place_primary(shard), {}});
    for (const Shard& shard : layout_.shards()) place_replicas(shard, all[shard.id.value]);
    return all;
  }

 private:
  using Load = std::map<RankId, std::int64_t>;  // elements

  bool has_copy(const Shard& shard, RankId rank) const {
    if (request_.copies.empty()) return false;
    const std::vector<RankId>& copies = request_.copies[shard.id.value];
    return std::find(copies.begin(), copies.end(), rank) != copies.end();
  }
  bool is_overloaded(const Load& load, const Shard& shard, RankId rank, double share) const {
    const auto at = load.find(rank);
    return static_cast<double>((at == load.end() ? 0 : at->second) + shard.count) > kWorthKeeping * share;
  }

  RankId place_primary(const Shard& shard) {
    std::set<RankId> users;
    for (const LayerId use : layout_.group(shard.group).uses) {
      for (const RankId rank : plan_.ranks_of_layer(use)) users.insert(rank);
    }
    const auto worse = [&](RankId rank) {
      return std::tuple(is_overloaded(primaries_, shard, rank, fair_share_), !has_copy(shard, rank), primaries_[rank]);
    };
    const RankId best =
        *std::min_element(users.begin(), users.end(), [&](RankId a, RankId b) { return worse(a) < worse(b); });
    primaries_[best] += shard.count;
    return best;
  }

  void place_replicas(const Shard& shard, ShardHolders& holders) {
    std::set<NodeId> nodes;
    std::set<RackId> racks;
    const auto take = [&](const PlanMember& member) {
      nodes.insert(member.node);
      if (member.rack != RackId{}) racks.insert(member.rack);
    };
    for (const PlanMember& member : holders_) {
      if (member.rank == holders.primary) take(member);
    }
    const double share = fair_share_ * static_cast<double>(replicas_);
    while (holders.replicas.size() < replicas_) {
      const PlanMember* best = nullptr;
      const auto worse = [&](const PlanMember& m) {
        return std::tuple(nodes.contains(m.node), racks.contains(m.rack),
                          is_overloaded(replica_load_, shard, m.rank, share), !has_copy(shard, m.rank),
                          replica_load_[m.rank]);
      };
      for (const PlanMember& member : holders_) {
        if (!holders.has(member.rank) && (best == nullptr || worse(member) < worse(*best))) best = &member;
      }
      take(*best);
      replica_load_[best->rank] += shard.count;
      holders.replicas.push_back(best->rank);
    }
  }

  const PlanRequest& request_;
  const Plan& plan_;
  const ModelLayout& layout_;
  const std::vector<PlanMember> holders_;  // members that may hold a shard
  const std::size_t replicas_;             // of each shard
  const double fair_share_;                // elements
  Load primaries_, replica_load_;
};

}  // namespace

Result<Plan> reference_plan(const PlanRequest& request, const JobConfig& job, const ModelLayout& layout) {
  const std::vector<PlanMember> workers = working(request.members);
  const std::uint32_t ranks = static_cast<std::uint32_t>(workers.size());
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
  Plan plan{request.job, request.lineage, request.generation, lanes, {}, {}, {}, {}};
  for (const PlanMember& member : request.members) plan.ranks.push_back({member.rank, member.node});
  std::vector<double> stage_costs;
  const std::vector<LayerRange> ranges = cut_layers(layout, job.batch, stages, stage_costs);
  const Blocks whole = whole_stages(stage_costs, ranks, lanes);
  const Blocks line = cut_line(stage_costs, ranks, lanes);
  const double gain = busiest(whole, stage_costs, ranks) / busiest(line, stage_costs, ranks);
  const Blocks& chosen = gain > kWorthSharing ? line : whole;
  const std::vector<RankId> order = neighbours_together(workers);
  for (std::uint32_t s = 0; s < stages; ++s) {
    plan.stages.push_back({ranges[s], chosen[s]});
    for (CellBlock& block : plan.stages.back().blocks) block.rank = order[block.rank.value];
  }
  plan.shards = ShardPlacer(request, plan, layout, static_cast<std::size_t>(job.resilience.replicas)).run();
  plan.reason = fmt::format(
      "{} ranks, {} stages, {} lanes: {}; the busiest rank of whole stages would have {:.2f} times "
      "the work of the busiest of an even cut",
      ranks, stages, lanes, gain > kWorthSharing ? "cells cut evenly" : "whole stages", gain);
  return plan;
}

}  // namespace kintsugi::testing
