#include "tests/engine/pipeline/survival_harness.hpp"

#include <algorithm>
#include <atomic>

#include "engine/plan/planner.hpp"

namespace kintsugi::test {

std::function<bool(const PeerCall&)> call(PeerCall::Kind kind, transport::MessageKind message, std::uint64_t step,
                                          std::optional<RankId> peer) {
  return [=](const PeerCall& c) {
    return c.kind == kind && c.key.kind == message && c.key.step.value == step && (!peer || c.peer == *peer);
  };
}

std::function<bool(const PeerCall&)> nth_call(std::uint64_t n) {
  return
      [n, made = std::make_shared<std::atomic<std::uint64_t>>(0)](const PeerCall&) { return made->fetch_add(1) == n; };
}

std::vector<PlanMember> ranks_apart(std::uint32_t count) {
  std::vector<PlanMember> members;
  for (std::uint32_t r = 0; r < count; ++r) members.push_back({{r}, {r}});
  return members;
}

namespace {

class Survival {
 public:
  explicit Survival(const SurvivalRequest& request)
      : request_(request), ranks_(request.job, request.devices), members_(request.members) {}

  SurvivalOutcome run() {
    const PlanRequest first{{1}, {1}, {1, 1}, members_};
    ranks_.open(must(make_plan(first, request_.job, ranks_.layout())), {}, hook(0));
    for (std::size_t i = 0; i < request_.faults.size(); ++i) {
      const auto ends = run_generation();
      EXPECT_TRUE(std::any_of(ends.begin(), ends.end(), [](const auto& end) { return !end.second.ok(); }))
          << "fault " << i << " never came";
      bury(request_.faults[i]);
      std::optional<DecisionRecord> known;
      if (!out_.records.empty()) known = out_.records.rbegin()->second;
      out_.transitions.push_back(ranks_.recover(members_, known, hook(i + 1)));
    }
    for (const auto& [rank, end] : run_generation()) must(end);
    out_.final_digest = ranks_.trainer(ranks_.plan().root()).final_digest();
    for (const PlanRank& member : ranks_.plan().ranks) {
      EXPECT_EQ(ranks_.trainer(member.rank).final_digest(), out_.final_digest) << "rank " << member.rank.value;
    }
    return out_;
  }

 private:
  std::map<RankId, Result<void>> run_generation() {
    auto ends = ranks_.run(true, [&](Trainer& trainer) -> Result<void> {
      KINTSUGI_TRY(out_.transitions.empty() ? trainer.initialise() : trainer.take_over(out_.transitions.back()));
      return trainer.run({request_.steps}, [&](const DecisionRecord& record, double) {
        EXPECT_TRUE(out_.records.emplace(record.step, record).second) << "step " << record.step.value << " twice";
      });
    });
    out_.plans.push_back(ranks_.plan());
    auto& accounts = out_.accounts.emplace_back();
    for (const auto& [rank, end] : ends) accounts[rank] = ranks_.trainer(rank).account();
    return ends;
  }

  Hook hook(std::size_t i) {
    if (i >= request_.faults.size()) return {};
    return [this, &fault = request_.faults[i]](const PeerCall& c) -> Result<void> {
      if (c.self != fault.victim || !fault.at(c)) return {};
      wait_until_known(fault, c.key.step);
      return Error{ErrorAction::cancelled, "killed by the test"};
    };
  }

  void wait_until_known(const Fault& fault, Step step) {
    const Instant deadline = ranks_.clock().now() + seconds(20);
    for (const RankId rank : fault.knowing) {
      const auto knows = [&] {
        const std::optional<DecisionRecord> record = ranks_.state(rank).record();
        return record && record->step >= step;
      };
      while (!knows()) {
        ASSERT_LT(ranks_.clock().now(), deadline) << "rank " << rank.value << " never held the record";
        static_cast<void>(Event().wait(ranks_.clock().now() + milliseconds(1)).ok());
      }
    }
  }

  void bury(const Fault& fault) {
    if (fault.remains) {
      ranks_.kill(fault.victim, *fault.remains);
      std::erase_if(members_, [&](const PlanMember& m) { return m.rank == fault.victim; });
    }
    if (!fault.in_take_over) {
      for (const PlanMember& m : members_) {
        EXPECT_EQ(ranks_.state(m.rank).copies().size(), ranks_.trainer(m.rank).blueprint().copies().size())
            << "a copy of rank " << m.rank.value << ", which lives, is APPLYING";
      }
    }
    members_.insert(members_.end(), fault.joiners.begin(), fault.joiners.end());
    std::sort(members_.begin(), members_.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  }

  const SurvivalRequest& request_;
  RankThreads ranks_;
  std::vector<PlanMember> members_;  // of the generation in force, or in the making
  SurvivalOutcome out_;
};

// Of the lanes of a step that began from `sums`, by brute force: (stage, lane) forward and backward.
WorkCount owed(const Plan& plan, const std::vector<KeptSum>& sums, const std::vector<LaneId>& of) {
  WorkCount count;
  for (const LaneId lane : of) {
    const auto is_lost = [&](std::uint32_t layer) {
      return std::none_of(sums.begin(), sums.end(), [&](const KeptSum& k) {
        return k.sum.layer.value == layer && lane.value >= k.sum.node.first && lane.value < k.sum.node.end();
      });
    };
    std::uint32_t lowest = 0;
    const std::uint32_t layers = plan.stages.back().layers.end;
    while (lowest < layers && !is_lost(lowest)) ++lowest;
    if (lowest == layers) continue;
    count.forward += plan.stages.size();
    count.backward += plan.stages.size() - plan.stage_of({lowest}).value;
  }
  return count;
}

void expect_nothing_undue(const SurvivalRequest& request, const SurvivalOutcome& outcome) {
  if (outcome.transitions.empty()) return;
  const Transition& began = outcome.transitions.back();
  const Plan& plan = outcome.plans.back();
  std::vector<LaneId> all;
  for (std::uint32_t lane = 0; lane < plan.lanes; ++lane) all.push_back({lane});
  const auto per_lane = static_cast<std::uint64_t>(request.job.batch.microbatches_per_lane());
  const std::uint64_t steps = request.steps - began.step.value;
  WorkCount first, again;
  if (steps > 0) first = owed(plan, began.sums, all);
  if (steps > 0) again = owed(plan, began.sums, began.again);
  const std::uint64_t whole = steps > 0 ? (steps - 1) * plan.lanes * plan.stages.size() : 0;
  WorkCount done;
  for (const auto& [rank, account] : outcome.accounts.back()) done += account.work;
  EXPECT_EQ(done.forward, per_lane * (whole + first.forward));
  EXPECT_EQ(done.backward, per_lane * (whole + first.backward));
  EXPECT_EQ(done.forward_again, per_lane * again.forward);
  EXPECT_EQ(done.backward_again, per_lane * again.backward);
}

}  // namespace

SurvivalOutcome survive(const SurvivalRequest& request) {
  return Survival(request).run();
}

SurvivalOutcome expect_same_bits(const SurvivalRequest& request) {
  const TrainingOutcome expected = train({request.job, 1, request.steps});
  SurvivalOutcome outcome = survive(request);
  EXPECT_EQ(outcome.final_digest, expected.final_digest);
  expect_nothing_undue(request, outcome);
  for (const DecisionRecord& record : expected.records) {
    const auto found = outcome.records.find(record.step);
    if (found == outcome.records.end()) continue;  // its root died before it told anybody
    DecisionRecord seen = found->second;
    seen.generation = record.generation;
    seen.failure_domains = record.failure_domains;
    EXPECT_EQ(seen, record) << "step " << record.step.value;
  }
  return outcome;
}

}  // namespace kintsugi::test
