// A shell around one JobMachine, as an actor is: events in, effects out. It plays the ranks and the nodes of the job, all
// of which answer; what takes time is for the fleet to say, which calls these when the time has come. Members that are as
// the plan makes one expect are counted in one event, the others are named (engine/control/counted_ranks.hpp).
//
// Steps between two events that matter are folded: the machine sees the first step of a generation and the one whose vote
// changes it, and its step numbers count those.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "engine/control/job_machine.hpp"
#include "sim/fleet/fold.hpp"

namespace kintsugi::sim {

class JobShell {
 public:
  using EffectHandler = std::function<void(const JobEffect&)>;

  // `wanted`: members; 0: as many as there are slots.
  JobShell(const Fold& fold, std::uint64_t lineage, std::uint32_t wanted, std::uint32_t nodes, Instant now,
           EffectHandler handler);

  void node_ready(NodeId node, const std::string& name, const std::string& rack, std::uint32_t slots, Instant now);
  void node_lost(NodeId node, const std::string& why, Instant now);
  void drain(NodeId node, Instant now);
  // Those of `ranks` whose node is still there say hello.
  void ranks_up(const std::vector<PlanRank>& ranks, Instant now);
  // A process ends; what it held stays in its node's memory unless it was told to leave.
  void rank_down(RankId rank, const std::string& why, bool expected, Instant now);
  void rank_failed(RankId rank, const std::string& why, Instant now);
  // Everybody answers the fence.
  void answer_fence(Instant now);
  void all_prepared(Instant now);
  // The next step becomes final; with `change` everybody was ready for the generation that is intended.
  void commit(bool change, Instant now);
  // A new supervisor takes the job over (DESIGN C6): a new machine, which learns from the nodes what they run.
  void adopt(Instant now);
  // The deadline that the machine armed last passes.
  void deadline_passed(Instant now);
  Instant deadline() const { return deadline_at_; }
  // Of that member's first copy, from now on.
  void corrupt(RankId rank) { corrupt_.insert(rank); }

  const JobMachine& machine() const { return *machine_; }
  std::uint64_t machine_steps() const { return steps_; }
  // Ranks.
  std::size_t living() const { return living_.size(); }
  // The lowest living rank there.
  std::optional<RankId> rank_on(NodeId node) const;
  // The plan that was resumed last; null before.
  const Plan* in_force() const { return in_force_.get(); }
  bool has_intent() const { return intended_.has_value(); }

 private:
  struct Node {
    std::string name, rack;
    std::uint32_t slots = 0;
  };

  void feed(const JobEvent& event, Instant now);
  void take(const JobEffects& effects);
  RankReport inventory(RankId rank, NodeId node, bool alive) const;
  void resumed();
  std::vector<ShardId> held_by(RankId rank) const;
  CountedRanks as_expected() const;

  EffectHandler handler_;
  std::unique_ptr<JobMachine> machine_;
  std::map<RankId, NodeId> living_;
  std::map<NodeId, RankSet> living_on_;
  RankSet newcomers_;  // living, and no members of the plan in force
  std::map<NodeId, Node> nodes_;
  std::map<RankId, NodeId> starting_;               // no hello yet
  std::map<NodeId, std::vector<RankReport>> left_;  // by processes that are gone
  std::shared_ptr<const Plan> in_force_;            // the last that was resumed
  std::optional<DecisionRecord> record_;            // the newest
  std::optional<Generation> intended_;
  RankSet corrupt_;
  std::uint64_t deadline_number_ = 0;
  Instant deadline_at_;
  std::uint64_t steps_ = 0;
};

}  // namespace kintsugi::sim
