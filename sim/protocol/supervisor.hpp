// The supervisor process: membership, the journal and its promises, and the job's machine, put together as
// actors/cluster_supervisor.cpp, job_supervisor.cpp and restart.cpp put them together.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/control/membership.hpp"
#include "engine/telemetry/journal_state.hpp"
#include "sim/protocol/context.hpp"

namespace kintsugi::sim::protocol {

// The state directory: it outlives the process, and holds what was written before it ended.
struct Disk {
  std::vector<JournalEntry> entries;
  Generation promised() const;  // the newest generation in it
};

// What the client who waits for the job is told.
struct Outcome {
  int exit_code = 0;
  std::string message;
};

class Supervisor final : public LinkUser {
 public:
  Supervisor(const Context& context, Pid pid, Incarnation incarnation, Disk& disk);

  // Takes what the disk says; without a job there, the job is submitted.
  void begin();
  void die() { waiting_.clear(); }
  Pid pid() const { return pid_; }
  Incarnation incarnation() const { return incarnation_; }

  void on_message(LinkId link, const Sent& message) override;
  void on_link_down(LinkId link, const std::string& why) override;

  // --- clients --------------------------------------------------------------------------------------------------------
  void drain(NodeId node);
  void evict(RankId rank);
  void pause();
  void resume();

  const JobMachine* machine() const { return machine_ ? &*machine_ : nullptr; }
  const Membership& members() const { return members_; }
  // The job is over: nobody waits any more.
  const std::optional<Outcome>& outcome() const { return outcome_; }
  // Whatever the machine says for people, the newest last.
  const std::deque<std::string>& notes() const { return notes_; }

 private:
  // --- the journal ----------------------------------------------------------------------------------------------------
  using Entry = decltype(JournalEntry::what);
  void write_down(Entry what) { append(std::move(what), nullptr); }
  // `then` runs once it is on the disk.
  void promise(Entry what, std::function<void()> then) { append(std::move(what), std::move(then)); }
  void in_turn(std::function<void()> then);
  void append(Entry what, std::function<void()> then);
  journaled::GenerationMade generation_made() const;

  // --- the cluster ----------------------------------------------------------------------------------------------------
  void join(LinkId link, const say::NodeHello& hello);
  void carry_out(const MemberEffects& effects, std::optional<LinkId> joining = std::nullopt, bool runs = false);
  void forget_absent();
  void to_node(NodeId node, const Sent& message);
  void to_nodes(const Sent& message);
  std::optional<NodeId> node_of(LinkId link) const;

  // --- the job --------------------------------------------------------------------------------------------------------
  void start_job(std::optional<Adoption> adoption);
  void feed(const JobEvent& event);
  void on_job_message(NodeId node, const Sent& message);
  void carry_out(JobEffects effects);
  void carry_out(const job_effect::Note& e);
  void carry_out(const job_effect::StartRanks& e);
  void carry_out(const job_effect::Fence& e);
  void carry_out(const job_effect::Prepare& e);
  void carry_out(const job_effect::Intend& e) { to_nodes(message(say::Intend{e.generation})); }
  void carry_out(const job_effect::KillRank& e) { to_nodes(message(say::KillRank{e.rank, e.why})); }
  void carry_out(const job_effect::NodeFree& e) { to_node(e.node, message(say::Leave{"it was drained"})); }
  void carry_out(const job_effect::Resume& e);
  void carry_out(const job_effect::Adopted&) {}
  void carry_out(const job_effect::Report& e);
  void carry_out(const job_effect::Incident&) {}
  void carry_out(const job_effect::Save&) {}
  void carry_out(const job_effect::CommitSave&) {}
  void carry_out(const job_effect::Stop& e);
  void carry_out(const job_effect::ArmDeadline& e);
  void carry_out(const job_effect::Ended& e);

  const Context& context_;
  const Pid pid_;
  const Incarnation incarnation_;
  Disk& disk_;
  std::uint32_t epoch_ = 0;
  Instant journal_free_;                       // when the writer is done with what it has
  std::deque<std::function<void()>> waiting_;  // for promises, in order
  Membership members_;
  std::map<NodeId, journaled::NodeJoined> absent_;
  std::map<NodeId, LinkId> links_;
  std::map<NodeId, bool> offered_;  // to the job; the value means nothing
  std::optional<JobMachine> machine_;
  std::optional<Outcome> outcome_;
  Step reported_;
  std::map<Step, DecisionRecord> heard_;
  std::optional<Instant> recorded_;
  std::deque<std::string> notes_;
};

}  // namespace kintsugi::sim::protocol
