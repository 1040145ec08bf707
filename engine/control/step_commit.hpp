// The vote of a step: from what ranks bring to the decision record. Pure (DESIGN 6.4): it runs at the root of the
// control tree, in the simulator and in tests alike.
//
// Every shard of the job must be there exactly once, every lane, and the acknowledgement of every replica of the plan; a
// missing one is not a smaller step but no step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/control/decision_record.hpp"
#include "engine/model/job_config.hpp"
#include "engine/plan/plan.hpp"

namespace kintsugi {

struct ShardVote {
  ShardId shard;
  double squared_norm = 0;  // of the reduced gradient; not finite as soon as one element is not
  Digest previous_digest;   // of the shard's state after step - 1
  bool operator==(const ShardVote&) const = default;
};

// A replica's acknowledgement: it holds the reduced gradient of this step, and its copy is at the step before.
struct ReplicaVote {
  ShardId shard;
  RankId holder;
  Digest previous_digest;
  bool operator==(const ReplicaVote&) const = default;
};

struct LaneLoss {
  LaneId lane;
  double loss = 0;  // sum over the lane's tokens, microbatches in order
  bool operator==(const LaneLoss&) const = default;
};

struct Contribution {
  std::vector<ShardVote> shards;  // of primaries
  std::vector<ReplicaVote> replicas;
  std::vector<LaneLoss> lanes;
  // What all that contributed are ready to change to after this step; empty as soon as one is not.
  std::optional<Generation> ready_for;
  bool operator==(const Contribution&) const = default;
};

std::vector<std::byte> encode_contribution(const Contribution& contribution);
Result<Contribution> decode_contribution(std::span<const std::byte> bytes);
// Both together; what a node of the control tree passes up.
Contribution merge(Contribution a, const Contribution& b);

// Committed state as the voters know it: the same everywhere.
struct CommitState {
  JobId job;
  Lineage lineage;
  Generation generation;
  Step step;                  // the newest final step
  std::uint64_t updates = 0;  // t: COMMITs so far
};

// The record of step state.step + 1 under `plan`. Error{end_generation} naming the shards, replicas or lanes that are
// missing or double, or the shard and holder whose copy differs from the primary's.
Result<DecisionRecord> decide_step(const CommitState& state, const JobConfig& job, const Plan& plan,
                                   const Contribution& all);

// State digest after `state.step` from the shard digests that `all` carries (see engine/state/state_digest.hpp), with the
// same checks of shards and replicas.
Result<Digest> digest_of_contribution(const CommitState& state, const JobConfig& job, const Plan& plan,
                                      const Contribution& all);

// How a record moves the state: SKIP advances the step (and with it the data position), not t.
CommitState advance(const CommitState& state, const DecisionRecord& record);

// The sum of values in the canonical tree over their index (base/lane_tree.hpp), in float64.
double tree_sum(std::span<const double> values);

}  // namespace kintsugi
