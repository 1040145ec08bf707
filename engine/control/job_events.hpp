// What a job's machine hears and says (job_machine.hpp), and what it is asked for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "engine/control/recovery.hpp"
#include "engine/model/job_config.hpp"

namespace kintsugi {

// Deadlines of the phases, all derived from one budget.
struct JobDeadlines {
  Duration waiting;    // for slots
  Duration starting;   // until every rank process has said hello
  Duration fencing;    // until every member has cancelled its work and reported
  Duration preparing;  // memory, state, first gather
  Duration step;       // one step, decision to decision
  Duration saving;
  Duration stopping;  // until every rank process is reaped
  Duration adopting;  // from the first node that has found a restarted supervisor to the last
  static JobDeadlines from_budget(Duration step_budget);
  bool operator==(const JobDeadlines&) const = default;
};

struct JobRequest {
  JobId job;
  Lineage lineage;
  std::uint32_t epoch = 1;  // of the supervisor; generations count within it
  JobConfig config;
  std::uint32_t ranks = 0;  // 0: as many as there are slots, at most the job's cells
  std::uint32_t nodes = 0;  // wait for at least this many nodes
  bool save = false;
  JobDeadlines deadlines;
  bool operator==(const JobRequest&) const = default;
};

// A generation change, phase by phase. Instants are those of the machine's events; empty: the phase was not reached.
struct IncidentReport {
  std::uint32_t id = 0;        // from 1, within the job
  std::string kind;            // "planned", "no progress", "work failed", "link cut", "rank lost" or "node lost"
  std::string target;          // "rank 2 on node 1 (a)"
  std::string why;             // the first evidence of that kind; what names a culprit replaces hearsay
  Generation generation;       // that it ended in
  std::uint32_t restarts = 0;  // times that a further fault made it start over
  Instant detected;
  std::optional<Instant> fenced, resumed, first_commit;
  std::uint64_t lanes_recomputed = 0;  // begun before, by ranks that are gone or not to the end, and computed once more
  std::uint64_t bytes_moved = 0;       // of state, by transfer
  std::uint64_t steps_lost = 0;        // committed steps that training went back by
  bool operator==(const IncidentReport&) const = default;
};

// What a restarted supervisor knows of a job from its journal.
struct Adoption {
  Generation promised;          // the newest that a member may have answered
  std::uint32_t next_rank = 0;  // no rank ever had this number or a higher one
  std::uint32_t incidents = 0;  // so far
  bool paused = false;          // or to be
  Step first;                   // of the state that the job began with
  std::optional<DecisionRecord> record;
  std::map<NodeId, std::string> nodes;  // of the cluster, that may come back
};

namespace job_event {
struct NodeReady {
  NodeId node;
  std::string name;
  std::uint32_t slots = 0;
  std::string rack = {};       // label of a wider failure domain; empty: none
  bool runs_this_job = false;  // for a former supervisor: it says what (NodeRestated)
};
struct NodeRestated {  // what the job is on a node that has outlived its supervisor
  struct Rank {
    RankId rank;
    std::string kernel_variant;  // empty: no hello yet
  };
  NodeId node;
  Generation generation;         // of the newest fence that it answered
  std::optional<Plan> in_force;  // of that generation, if it was resumed
  std::vector<Rank> living;
  std::vector<RankId> gone;              // whose memory is there
  std::optional<DecisionRecord> record;  // the newest that passed through it
};
struct NodeLost {
  NodeId node;
  std::string why;
};
struct RankUp {
  RankId rank;
  std::string kernel_variant;
};
struct RankReported {  // it has cancelled its work of older generations and accepts nothing of theirs
  Generation generation;
  RankReport report;
};
struct NodeReported {  // what ranks whose processes are gone left on it
  NodeId node;
  Generation generation;
  std::vector<RankReport> left_behind;
};
// All ranks and nodes that are asked and have not answered, but these, are as the plan makes one expect: ranks hold its
// shards and say `said` (whose ranks are empty), nodes have nothing of ranks that are gone.
struct OthersReported {
  Generation generation;
  RankSet but_ranks = {};
  NodeSet but_nodes = {};
  CountedRanks said;
};
struct RankPrepared {
  RankId rank;
  Generation generation;
  Digest plan;
  Step step;
};
struct OthersPrepared {  // all members that have not said so, but these
  Generation generation;
  Digest plan;
  Step step;
  RankSet but = {};
};
struct DrainNode {  // a planned leave: its ranks give up their work and their shards, then end
  NodeId node;
};
struct EvictRank {  // the same of one rank, whose slot is used no more
  RankId rank;
};
struct PauseJob {};  // after the next vote that all are ready at: no step, all state kept
struct ResumeJob {};
struct StepFinal {
  DecisionRecord record;
};
struct RankFinished {
  RankId rank;
  Generation generation;
  Step step;
  Digest digest;
  bool operator==(const RankFinished&) const = default;
};
struct RankSaved {
  RankId rank;
  Generation generation;
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
  Generation generation;  // of the work that failed
  Error error;
  std::vector<RankId> lost_peers = {};  // on other nodes, that the network has given up on
  bool operator==(const RankFailed& other) const {
    return rank == other.rank && generation == other.generation && error.action == other.error.action &&
           error.message == other.error.message && lost_peers == other.lost_peers;
  }
};
struct Cancel {
  std::string why;
  int exit_code = 130;
};
struct DeadlinePassed {
  std::uint64_t number = 0;
};
}  // namespace job_event

using JobEvent = std::variant<job_event::NodeReady, job_event::NodeRestated, job_event::NodeLost, job_event::RankUp,
                              job_event::RankReported, job_event::NodeReported, job_event::OthersReported,
                              job_event::OthersPrepared, job_event::DrainNode, job_event::EvictRank,
                              job_event::PauseJob, job_event::ResumeJob, job_event::RankPrepared, job_event::StepFinal,
                              job_event::RankFinished, job_event::RankSaved, job_event::SaveCommitted,
                              job_event::RankDown, job_event::RankFailed, job_event::Cancel, job_event::DeadlinePassed>;

namespace job_effect {
struct Note {  // a phase, for people
  std::string text;
};
struct StartRanks {
  std::vector<PlanRank> ranks;
};
struct Fence {  // to every node that has or had ranks of the job: cancel, accept nothing lower, report
  Generation generation;
  std::string why;
};
struct Prepare {
  Plan plan;
  // Empty: make state anew, at step 0 or from the save that the job resumes from.
  std::optional<Transition> transition;
  std::uint64_t bytes_moved = 0;  // of state, by transfer
};
// Every member says in its votes that it is ready for `generation`; the vote that all agree in is the last.
struct Intend {
  Generation generation;
};
struct KillRank {  // it does not answer
  RankId rank;
  std::string why;
};
struct NodeFree {  // drained: nothing of the job is on it
  NodeId node;
};
struct Resume {
  Generation generation;
};
struct Adopted {  // training goes on as it did under the former supervisor
  Plan plan;
};
struct Report {  // a step became final
  DecisionRecord record;
};
struct Incident {  // a generation change is over: its first step is final, or the job ended with no step left
  IncidentReport report;
};
struct Save {};
struct CommitSave {};  // every rank has saved: publish
struct Stop {          // how it ends is decided; ranks may go
  int exit_code = 0;
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

using JobEffect = std::variant<job_effect::Note, job_effect::StartRanks, job_effect::Fence, job_effect::Prepare,
                               job_effect::Intend, job_effect::KillRank, job_effect::NodeFree, job_effect::Resume,
                               job_effect::Adopted, job_effect::Report, job_effect::Incident, job_effect::Save,
                               job_effect::CommitSave, job_effect::Stop, job_effect::ArmDeadline, job_effect::Ended>;
using JobEffects = std::vector<JobEffect>;

}  // namespace kintsugi
