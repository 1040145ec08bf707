// The vote of a step: from what ranks bring to the decision record. Pure (DESIGN 6.4): it runs at the root of the
// control tree, in the simulator and in tests alike.
//
// Every shard of the job must be there exactly once, and every lane; a missing one is not a smaller step but no step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/control/decision_record.hpp"
#include "engine/model/job_config.hpp"

namespace kintsugi {

struct ShardVote {
  ShardId shard;
  double squared_norm = 0;  // of the reduced gradient; not finite as soon as one element is not
  Digest previous_digest;   // of the shard's state after step - 1
  bool operator==(const ShardVote&) const = default;
};

struct LaneLoss {
  LaneId lane;
  double loss = 0;  // sum over the lane's tokens, microbatches in order
  bool operator==(const LaneLoss&) const = default;
};

struct Contribution {
  std::vector<ShardVote> shards;
  std::vector<LaneLoss> lanes;
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

// The record of step state.step + 1. Error{end_generation} naming the shards or lanes that are missing or double.
Result<DecisionRecord> decide_step(const CommitState& state, const JobConfig& job, std::uint32_t shard_count,
                                   const Contribution& all);

// State digest after `state.step` from the shard digests that `all` carries (see engine/state/state_digest.hpp).
Result<Digest> digest_of_contribution(const CommitState& state, const JobConfig& job, std::uint32_t shard_count,
                                      const Contribution& all);

// How a record moves the state: SKIP advances the step (and with it the data position), not t.
CommitState advance(const CommitState& state, const DecisionRecord& record);

// The sum of values in the canonical tree over their index (base/lane_tree.hpp), in float64.
double tree_sum(std::span<const double> values);

}  // namespace kintsugi
