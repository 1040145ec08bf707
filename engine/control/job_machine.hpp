// A job's life as a pure machine: waiting -> starting -> preparing -> running -> saving -> stopping -> ended.
//
// In this version a fault ends the job: the machine names the culprit, stops the others and waits, up to a deadline,
// until every process is gone. Plan, prepare and switch already have the shape of a generation change (DESIGN 7), so
// that survival adds transitions, not another path.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "engine/control/decision_record.hpp"
#include "engine/plan/planner.hpp"

namespace kintsugi {

enum class JobPhase : std::uint8_t { waiting, starting, preparing, running, saving, stopping, ended };
const char* to_string(JobPhase phase);

// Deadlines of the phases, all derived from one budget.
struct JobDeadlines {
  Duration waiting;    // for slots
  Duration starting;   // until every rank process has said hello
  Duration preparing;  // memory, state, first gather
  Duration step;       // one step, decision to decision
  Duration saving;
  Duration stopping;  // until every rank process is reaped
  static JobDeadlines from_budget(Duration step_budget);
};

struct JobRequest {
  JobId job;
  Lineage lineage;
  Generation generation;
  JobConfig config;
  std::uint32_t ranks = 0;  // 0: as many as there are slots, at most the job's cells
  std::uint32_t nodes = 0;  // wait for at least this many nodes
  bool save = false;
  JobDeadlines deadlines;
};

namespace job_event {
struct NodeReady {
  NodeId node;
  std::string name;
  std::uint32_t slots = 0;
};
struct NodeLost {
  NodeId node;
  std::string why;
};
struct RankUp {
  RankId rank;
  std::string kernel_variant;
};
struct RankPrepared {
  RankId rank;
  Generation generation;
  Digest plan;
  Step step;
};
struct StepFinal {
  DecisionRecord record;
};
struct RankFinished {
  RankId rank;
  Step step;
  Digest digest;
};
struct RankSaved {
  RankId rank;
};
struct SaveCommitted {  // the checkpoint coordinator has published the directory, or could not
  Result<void> outcome;
};
struct RankDown {  // the process is gone and reaped
  RankId rank;
  std::string why;        // "was killed by signal 9"
  bool expected = false;  // it ended by itself after a stop
};
struct RankFailed {
  RankId rank;
  Error error;
};
struct Cancel {
  std::string why;
  int exit_code = 130;
};
struct DeadlinePassed {
  std::uint64_t number = 0;
};
}  // namespace job_event

using JobEvent =
    std::variant<job_event::NodeReady, job_event::NodeLost, job_event::RankUp, job_event::RankPrepared,
                 job_event::StepFinal, job_event::RankFinished, job_event::RankSaved, job_event::SaveCommitted,
                 job_event::RankDown, job_event::RankFailed, job_event::Cancel, job_event::DeadlinePassed>;

namespace job_effect {
struct Note {  // a phase, for people
  std::string text;
};
struct StartRanks {
  std::vector<NodeId> rank_nodes;
};
struct Prepare {
  Plan plan;
};
struct Resume {
  Generation generation;
};
struct Report {  // a step became final
  DecisionRecord record;
};
struct Save {};
struct CommitSave {};  // every rank has saved: publish
struct Stop {
  std::string why;
};
struct ArmDeadline {
  std::uint64_t number = 0;
  Instant at;
};
struct Ended {
  int exit_code = 0;
  std::string message;
};
}  // namespace job_effect

using JobEffect = std::variant<job_effect::Note, job_effect::StartRanks, job_effect::Prepare, job_effect::Resume,
                               job_effect::Report, job_effect::Save, job_effect::CommitSave, job_effect::Stop,
                               job_effect::ArmDeadline, job_effect::Ended>;
using JobEffects = std::vector<JobEffect>;

class JobMachine {
 public:
  explicit JobMachine(JobRequest request);

  // What waiting starts with. Then one call for each event; a stale or foreign event changes nothing and is counted.
  JobEffects start(Instant now);
  JobEffects step(const JobEvent& event, Instant now);

  JobPhase phase() const { return phase_; }
  const std::optional<Plan>& plan() const { return plan_; }
  Step final_step() const { return step_; }
  std::uint64_t dropped() const { return dropped_; }
  const JobRequest& request() const { return request_; }

 private:
  struct Node {
    std::string name;
    std::uint32_t slots = 0;
  };

  JobEffects on(const job_event::NodeReady&, Instant);
  JobEffects on(const job_event::NodeLost&, Instant);
  JobEffects on(const job_event::RankUp&, Instant);
  JobEffects on(const job_event::RankPrepared&, Instant);
  JobEffects on(const job_event::StepFinal&, Instant);
  JobEffects on(const job_event::RankFinished&, Instant);
  JobEffects on(const job_event::RankSaved&, Instant);
  JobEffects on(const job_event::SaveCommitted&, Instant);
  JobEffects on(const job_event::RankDown&, Instant);
  JobEffects on(const job_event::RankFailed&, Instant);
  JobEffects on(const job_event::Cancel&, Instant);
  JobEffects on(const job_event::DeadlinePassed&, Instant);

  JobEffects drop();
  JobEffects enter(JobPhase phase, Duration limit, Instant now, JobEffects effects);
  JobEffects try_start(Instant now);
  JobEffects prepare(Instant now);
  JobEffects stop(int exit_code, std::string why, Instant now);
  JobEffects end_if_all_down();
  std::uint64_t cells() const;
  std::uint32_t rank_count() const { return static_cast<std::uint32_t>(rank_nodes_.size()); }
  std::string name_of(RankId rank) const;
  std::string missing(const std::set<RankId>& have) const;

  JobRequest request_;
  JobPhase phase_ = JobPhase::waiting;
  std::map<NodeId, Node> nodes_;
  std::vector<NodeId> rank_nodes_;  // by rank, from starting on
  std::optional<Plan> plan_;
  std::set<RankId> up_, prepared_, finished_, saved_, down_;
  std::optional<std::string> kernel_variant_;
  std::optional<Digest> final_digest_;
  Step step_;
  std::uint64_t deadline_number_ = 0;
  std::uint64_t dropped_ = 0;
  int exit_code_ = 0;
  std::string why_;                // of the end
  bool cause_is_hearsay_ = false;  // a peer's error, which the death of the peer itself explains better
};

}  // namespace kintsugi
