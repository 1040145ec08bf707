// A job trained to its end through faults: a rank dies instead of making some call, all others are cancelled, what is left
// is reported, the survivors go on under a new plan.
#pragma once

#include "tests/engine/pipeline/training_harness.hpp"

namespace kintsugi::test {

struct Fault {
  RankId victim;
  std::function<bool(const PeerCall&)> at;  // of the victim's calls: this one is not made any more
  // What the death leaves. None: the process lives, only its connections broke.
  std::optional<Remains> remains = Remains::nothing;
  std::vector<RankId> knowing = {};      // the victim waits until these hold the record of the call's step
  std::vector<PlanMember> joiners = {};  // members of the next generation, beside those that live
  bool in_take_over = false;             // before training went on: copies on their way are not whole
};

// The first call of that kind about that message of that step, with `peer` where one is given.
std::function<bool(const PeerCall&)> call(PeerCall::Kind kind, transport::MessageKind message, std::uint64_t step,
                                          std::optional<RankId> peer = std::nullopt);
// The `n`-th call of any kind, from 0.
std::function<bool(const PeerCall&)> nth_call(std::uint64_t n);

struct SurvivalRequest {
  JobConfig job;
  std::vector<PlanMember> members;
  std::vector<Fault> faults;  // one ends each generation, in order
  std::uint64_t steps = 4;
  MakeDevice devices = cpu_devices();
};

struct SurvivalOutcome {
  Digest final_digest;                     // the same at every rank (asserted)
  std::map<Step, DecisionRecord> records;  // those that a root told of, each once (asserted)
  std::vector<Transition> transitions;     // one a fault
  // By generation; what a rank did in it.
  std::vector<Plan> plans;
  std::vector<std::map<RankId, Trainer::Account>> accounts;
};

SurvivalOutcome survive(const SurvivalRequest& request);
// `count` ranks, each on a node of its own.
std::vector<PlanMember> ranks_apart(std::uint32_t count);
// Trains `request` and compares with a run of one rank without faults: the final digest, and whatever records say of the
// computation. The last generation did no work but what it owed.
SurvivalOutcome expect_same_bits(const SurvivalRequest& request);

}  // namespace kintsugi::test
