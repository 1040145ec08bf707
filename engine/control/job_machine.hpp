// A job's life as a pure machine (DESIGN 7):
//
//   waiting -> starting -> fencing -> preparing -> running -> saving -> stopping -> ended
//                 ^          ^            |           |         |
//                 +----------+------------+-----------+---------+   a fault, or a planned change that was voted
//
// Every generation is made in one way: all members are fenced and report what they hold, a plan is made for those that
// live, they prepare it, and once all have, training goes on. The first generation is that with nothing to report. A
// fault in any phase starts over with a higher generation. Ranks are never replaced, they are succeeded: survivors take
// over at once, a new rank process starts where a slot is free, and is let in by a planned change at a vote. Only where
// nobody lives who could take over does training wait for new ranks (starting).
//
// The machine of a restarted supervisor begins with `adopting`: nodes that have outlived the former one say what they run.
// When all members of the plan in force are there, it is running under that plan, and nothing was disturbed. Else it makes
// the first generation of its own epoch with whoever is there.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "base/flat_set.hpp"

#include "engine/control/fence_answers.hpp"
#include "engine/control/job_events.hpp"
#include "engine/control/link_faults.hpp"
#include "engine/control/rank_table.hpp"

namespace kintsugi {

enum class JobPhase : std::uint8_t {
  waiting,
  adopting,
  starting,
  fencing,
  preparing,
  running,
  paused,
  saving,
  stopping,
  ended
};
const char* to_string(JobPhase phase);

// A fault that comes back with every generation is not one that a next generation cures. Beside these, every rank may
// die once: one after the other, when somebody kills them all.
constexpr std::uint32_t kMaxChangesWithoutStep = 16;
// New processes for lost ones: a machine on which ranks die at once must not be kept busy by that.
constexpr std::size_t kMaxRestarts = 8;
// In a large cluster many are lost in a minute that have nothing to do with each other: one restart for so many ranks.
constexpr std::size_t kRanksOfRestart = 16;
constexpr Duration kRestartWindow = seconds(60);

class JobMachine {
 public:
  explicit JobMachine(JobRequest request);

  // What waiting starts with. Then one call for each event; a stale or foreign event changes nothing and is counted.
  JobEffects start(Instant now);
  // What a job that a former supervisor ran starts with instead.
  JobEffects adopt(const Adoption& adoption, Instant now);
  JobEffects step(const JobEvent& event, Instant now);

  JobPhase phase() const { return phase_; }
  Generation generation() const { return generation_; }
  const std::optional<Plan>& plan() const { return plan_; }
  Digest plan_digest() const { return plan_digest_; }
  Step final_step() const { return step_; }
  std::uint64_t dropped() const { return told_.dropped; }
  const JobRequest& request() const { return request_; }
  RankId next_rank() const { return ranks_.next_rank(); }
  std::uint32_t incidents() const { return incident_count_; }
  bool is_pausing() const { return pausing_; }
  bool in_incident() const { return incident_.has_value(); }
  std::string name_of(RankId rank) const;
  bool operator==(const JobMachine&) const = default;

 private:
  // Why a generation ends; a later kind explains more than an earlier one.
  enum class CauseKind : std::uint8_t { planned, no_progress, work_failed, link_cut, rank_lost, node_lost };
  struct Cause {
    CauseKind kind = CauseKind::planned;
    std::string target, why;
  };
  static const char* name_of(CauseKind kind);

  void on(const job_event::NodeReady& e);
  void on(const job_event::NodeRestated& e);
  void on(const job_event::NodeLost& e);
  void on(const job_event::RankUp& e);
  void on(const job_event::RankReported& e);
  void on(const job_event::NodeReported& e);
  void on(const job_event::OthersReported& e);
  void on(const job_event::RankPrepared& e);
  void on(const job_event::OthersPrepared& e);
  void take_prepared(const RankSet& ranks, const Digest& plan, Step step);
  void on(const job_event::DrainNode& e);
  void on(const job_event::EvictRank& e);
  void on(const job_event::PauseJob& e);
  void on(const job_event::ResumeJob& e);
  void on(const job_event::StepFinal& e);
  void on(const job_event::RankFinished& e);
  void on(const job_event::RankSaved& e);
  void on(const job_event::SaveCommitted& e);
  void on(const job_event::RankDown& e);
  void on(const job_event::RankFailed& e);
  void on(const job_event::Cancel& e);
  void on(const job_event::DeadlinePassed& e);

  // What decides nothing, and does not tell machines apart.
  struct Told {
    JobEffects effects;  // of the event being handled
    std::uint64_t dropped = 0;
    bool operator==(const Told&) const { return true; }
  };

  void emit(JobEffect effect) { told_.effects.push_back(std::move(effect)); }
  void drop() { ++told_.dropped; }
  void enter(JobPhase phase, Duration limit);
  bool is_current(RankId rank, Generation generation) const;
  bool steps_left() const;
  RankSet missing(const RankSet& have) const;
  void pause();
  void resume();
  Generation next_generation() const;
  void stop(int exit_code, std::string why);
  void end_if_all_down();

  // job_adoption.cpp: a restarted supervisor finds its job
  struct Restated {
    Generation generation;
    std::optional<Generation> in_force;
    bool operator==(const Restated&) const = default;
  };
  // The newest plan that was in force somewhere, so that every member had prepared it, and which of its nodes are back.
  struct Witnesses {
    std::optional<Plan> plan;
    std::map<NodeId, bool> nodes;  // of the plan: is it back?
    std::size_t awaited = 0;       // nodes that are not
    void hear(NodeId node);
    void forget(NodeId node);
    bool operator==(const Witnesses&) const = default;
  };
  void hear(const job_event::NodeRestated& e);
  void place(const job_event::NodeRestated& e);
  void learn(const DecisionRecord& record);
  void consider_adoption();
  void adopt_plan(Plan plan);
  void go_on_with_who_is_here();
  void hear_what_was_said_before();
  std::optional<Cause> why_not_adopted() const;
  Duration patience() const;

  // job_ranks.cpp: how many ranks there are
  std::uint64_t cells() const;
  std::uint64_t wanted() const;
  std::uint64_t most() const;
  std::uint64_t gap() const;
  std::uint64_t needed() const;
  void try_start();
  std::uint64_t launch(std::uint64_t count, const NodeSet& first = {});
  std::size_t max_restarts() const;
  // Into free slots, as far as the budget goes. False: it is spent.
  bool replace_lost();
  void leave_starting_if_ready();
  void lost_while_starting(const std::string& why);
  void go_on_without(const RankSet& silent);
  std::optional<Cause> accuse(const job_event::RankFailed& e);
  bool is_left_out(NodeId node) const { return left_out().contains(node); }
  NodeSet left_out() const;
  RankSet left_out_ranks() const;
  void refuse(RankId rank, const std::string& why);
  void refill();

  // job_leaving.cpp: ranks that leave by plan
  bool can_leave() const;
  RankSet leaving_members() const;
  void release_idle();
  void free_drained();
  void shed_surplus();

  // job_generation.cpp: from one generation to the next
  void begin_generation(const std::optional<Cause>& cause);
  void start_over(const std::string& why);
  void fence_without(NodeId node, const RankSet& lost, const Cause& cause);
  void consider_reports();
  void go_on_from(const Cut& cut, const Reports& reports);
  void start_where_state_is(const NodeSet& nodes);
  void prepare(Plan plan, std::optional<Transition> transition);
  void give_up_unless_more_may_come(const std::vector<ShardId>& lost);
  std::vector<ShardId> every_shard() const;
  void stop_lost(const std::vector<ShardId>& shards);
  bool is_publishing() const;
  void lose_members(const RankSet& lost, const Cause& cause);
  void on_overdue(const RankSet& silent_ranks, const NodeSet& silent_nodes, const std::string& what);
  void became_final(const DecisionRecord& record);
  void open_incident(const Cause& cause);
  void explain_incident(const Cause& cause);
  void close_incident();

  JobRequest request_;
  std::shared_ptr<const ModelLayout> layout_;
  JobPhase phase_ = JobPhase::waiting;
  RankTable ranks_;
  std::deque<Instant> restarts_;  // within kRestartWindow
  std::optional<std::string> kernel_variant_;

  std::optional<Generation> promised_;    // by a former supervisor
  std::map<NodeId, std::string> absent_;  // of a former supervisor's nodes
  std::map<NodeId, Restated> restated_;   // of nodes that are back
  Witnesses witnesses_;
  // Said to the former supervisor, perhaps, and again to this one: of the plan that is adopted, if it is.
  std::map<RankId, job_event::RankFinished> finished_before_;
  std::map<RankId, job_event::RankFailed> failed_before_;

  Generation generation_;
  RankSet members_;  // of the generation, from its fence on
  LinkFaults link_faults_;
  RankSet leaving_;  // by plan: drained or evicted
  NodeSet draining_;
  bool pausing_ = false;  // asked for; until it is taken back
  FenceAnswers answers_;
  RankSet overdue_;  // killed for their silence, not down yet
  bool patience_is_out_ = false;
  std::optional<Plan> plan_;
  Digest plan_digest_;
  std::optional<Transition> transition_;     // that plan_ began or begins with
  std::optional<StepUnderWay> interrupted_;  // by the incident
  bool established_ = false;                 // a generation was prepared: there is state that must not be made anew
  std::optional<Generation> intended_;
  RankSet prepared_, finished_, saved_;
  std::uint64_t changes_ = 0;  // generations begun since a step became final

  Step step_;
  std::optional<DecisionRecord> known_;  // of step_
  std::optional<Digest> final_digest_;
  std::optional<IncidentReport> incident_;  // the one under way
  CauseKind incident_kind_ = CauseKind::planned;
  std::uint32_t incident_count_ = 0;

  std::uint64_t deadline_number_ = 0;
  int exit_code_ = 0;
  std::string why_;  // of the end
  Instant now_;      // of the event being handled
  Told told_;
};

}  // namespace kintsugi
