// Chooses a plan. A pure function: the same request gives the same plan on every machine.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/model/layout.hpp"
#include "engine/plan/plan.hpp"

namespace kintsugi {

// A failure domain of several nodes; 0: none, a node is its own.
using RackId = StrongId<struct RackTag>;

struct PlanMember {
  RankId rank;
  NodeId node;
  RackId rack = {};
  bool idle = false;  // about to leave: it gets no work and no shards
};

struct PlanRequest {
  JobId job;
  Lineage lineage;
  Generation generation;
  std::vector<PlanMember> members;  // ranks ascending
  // By shard, members that hold its newest state. Empty where nobody does, and at the start of a job.
  std::vector<FewRanks> copies = {};
  // Of the same job, or null: there is nothing to keep. Read during the call.
  const Plan* in_force = nullptr;
};

// Layers go to stages so that the dearest stage is as cheap as can be, each stage with at least one block. Ranks go to
// stages in proportion to their cost (fewer ranks than stages: neighbouring stages share a rank); where that leaves the
// busiest rank more than kWorthSharing times busier than cutting the line of cells (stage after stage, lane after lane)
// into equal pieces would, the cells are cut that way. A shard's primary is a rank that works one of its uses; its replicas,
// resilience.replicas - 1 of them where there are as many ranks, lie on other nodes, on other racks first. Among equals,
// whoever has a copy already, then the least loaded.
// With a plan in force all that stays as it is, and only what those who are gone leave open, or newcomers can relieve others
// of, is given away (cell_repair.hpp, shard_placer.hpp): a plan from nothing is a repair of which nothing stays. It is made
// where the busiest rank of a repair would have more than kWorthReplanning times the work, and where so many come that
// little would stay. Never to save bytes: a repair moves one copy for every one that is lost, and no plan moves fewer.
// Error{tell_user} when there are more working ranks than cells. Asserts that not all are idle.
Result<Plan> make_plan(const PlanRequest& request, const JobConfig& job, const ModelLayout& layout);

// Keeping a shard where it is may cost a rank so much more than its fair share of all state.
constexpr double kWorthKeeping = 1.25;

// A rank at a cut holds the weights of two stages: worth it only for a clear gain in time.
constexpr double kWorthSharing = 1.15;

// A plan from nothing changes what every rank does and has.
constexpr double kWorthReplanning = 1.15;

}  // namespace kintsugi
