// What survived a fault, and from where training goes on (DESIGN 7, Report and Plan). Pure: reports in, a decision out.
//
// Every rank that answers a fence says which copies of which shards it holds and the newest decision record it knows;
// every node says the same of ranks whose processes are gone, from memory that outlived them. If anybody holds the record
// of step k, step k is final: who is at k - 1 still has the reduced gradient, because all holders had it when k was voted
// on. If nobody does, k did not happen: it is finished from the partial sums that are left.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/control/counted_ranks.hpp"
#include "engine/control/decision_record.hpp"
#include "engine/control/rank_report.hpp"
#include "engine/plan/planner.hpp"
#include "engine/plan/redo.hpp"

namespace kintsugi {

// Where committed state stands, and who can bring each shard there.
struct Cut {
  Step step;
  std::uint64_t updates = 0;
  // Of `step`, when a copy may still be at step - 1. Empty: every copy counted is at `step` already.
  std::optional<DecisionRecord> record;
  std::vector<FewRanks> holders;           // by shard: ranks, living ones first, that hold it at `step` or can
  std::vector<ShardId> lost;               // nobody can
  std::vector<std::string> disagreements;  // copies of one version with different digests, for people
};

// `known`: the newest record that whoever asks holds itself. `shard_count`: of the job. No report with a copy and no
// record means that nothing was ever committed: the cut is at step 0 with every shard lost.
Cut decide_cut(const Reports& reports, const std::optional<DecisionRecord>& known, std::uint32_t shard_count);

// By shard, the members that hold it in the cut or can take it over on their node: `copies` for the planner. Empty
// where the last copies lie on nodes without a member: those need a rank before there can be a plan.
std::vector<FewRanks> reachable_copies(const Cut& cut, const Reports& reports, std::span<const PlanMember> members);

// A copy that a member of the new plan lacks, and from whom it comes. `from` living: over the data plane. `from` gone:
// its memory on to's node is taken over. A receiver that the plan gives no copy passes it on: it is a source of other
// moves, and drops the copy when the generation resumes, as every source does that holds more than the plan says.
struct ShardMove {
  ShardId shard;
  RankId to;
  RankId from;
  bool take_over = false;  // the memory itself, on one node; else a transfer
  auto operator<=>(const ShardMove&) const = default;
};

// How a generation begins, beside its plan.
struct Transition {
  Step step;                  // of the state that training goes on from
  std::uint64_t updates = 0;  // t there
  std::optional<DecisionRecord> record;
  std::vector<ShardMove> moves;    // by shard; what is taken over before what is copied from it
  std::vector<KeptSum> sums = {};  // of step + 1; for engine/plan/redo.hpp
  std::vector<LaneId> again = {};  // begun in that step before, and to be computed once more
  bool operator==(const Transition&) const = default;
};

// What a fault interrupted: the plan in force, and what it began with.
struct StepUnderWay {
  Plan plan;
  Step from;
  std::vector<KeptSum> sums;  // of from + 1
  bool operator==(const StepUnderWay&) const = default;
};

// Every holder of `plan` that has no copy in the cut gets one: from memory on its node whose rank is gone, else from a
// living holder, one on its own node first, spread evenly. Asserts that cut.lost is empty, that no shard is out of reach
// of the plan's members, and that `reports` are those of the cut, one a rank. The step after the cut is finished from the
// sums of living members. Nobody knows how far a rank that is gone had come in `interrupted`: its lanes count as begun.
Transition plan_transition(const Plan& plan, const Cut& cut, const Reports& reports,
                           const std::optional<StepUnderWay>& interrupted = std::nullopt);

}  // namespace kintsugi
