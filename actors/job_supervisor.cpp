#include "actors/job_supervisor.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "actors/checkpoint_coordinator.hpp"
#include "actors/job_frames.hpp"
#include "actors/job_held.hpp"
#include "actors/job_journal.hpp"
#include "actors/save_folder.hpp"
#include "engine/control/recovery_codec.hpp"
#include "engine/plan/plan_codec.hpp"

namespace kintsugi::actors {

struct JobDeadline {
  std::uint32_t incarnation = 0;  // whose machine has armed it
  std::uint64_t number = 0;
};

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::JobDeadline)

namespace kintsugi::actors {

namespace {

class JobSupervisor final : public Body {
 public:
  JobSupervisor(Life life, HeldJobSupervisor& held)
      : Body(std::move(life)),
        held_(held),
        parts_(held.parts),
        account_(held.account),
        frames_(parts_.job, parts_.admitted),
        machine_(job_request(parts_.job, parts_.epoch, parts_.admitted)),
        journal_(machine_, parts_.journal, held.memo),
        promises_(this->life().incarnation) {}

  caf::behavior make_behavior() override {
    const bool saves = !parts_.admitted.submission.save_directory.empty();
    if (saves && !held_.coordinator) {
      held_.coordinator = spawn_checkpoint_coordinator(place("checkpoint_coordinator"), held_.save_cancelled);
    }
    begin();
    return {
        [this](const NodeOffered& m) {
          held_.nodes[m.node] = m;
          feed(job_event::NodeReady{m.node, m.name, m.slots, m.rack, m.runs_this_job});
        },
        [this](const NodeGone& m) {
          held_.nodes.erase(m.node);
          feed(job_event::NodeLost{m.node, m.why});
        },
        [this](const NodeFrame& m) { on_frame(m); },
        [this](const PromiseKept& m) { promises_.kept(m); },
        [this](const CancelJob& m) {
          *held_.save_cancelled = true;
          feed(job_event::Cancel{m.why, m.exit_code});
        },
        [this](const DrainNodeOfJob& m) {
          held_.draining.insert(m.node);
          feed(job_event::DrainNode{m.node});
        },
        [this](const EvictRankOfJob& m) {
          held_.evicting.insert(m.rank);
          feed(job_event::EvictRank{m.rank});
        },
        [this](const PauseJob&) { feed(job_event::PauseJob{}); },
        [this](const ResumeJob&) { feed(job_event::ResumeJob{}); },
        [this](const JobDeadline& m) {
          if (m.incarnation == life().incarnation) feed(job_event::DeadlinePassed{m.number});
        },
        [this](const SaveBegun& m) { on_save_begun(m.staging); },
        [this](const SaveDone& m) { on_save_done(m.outcome); },
    };
  }

  void on_end() override {
    *held_.save_cancelled = true;
    if (held_.coordinator) send(held_.coordinator, EndSave{});
    held_.coordinator = nullptr;
    held_.cluster = nullptr;
    parts_.journal = nullptr;
  }

 private:
  void begin() {
    const Instant now = parts_.clock->now();
    const std::optional<Adoption> adoption = held_.what_is_known();
    carry_out(adoption ? machine_.adopt(*adoption, now) : machine_.start(now));
    if (!life().before) return;
    parts_.logger.warning("the job has a new supervisor, in the same process", {{"why", life().before->why}});
    for (const auto& [node, offered] : held_.nodes) {
      feed(job_event::NodeReady{node, offered.name, offered.slots, offered.rack, adoption.has_value()});
    }
    to_nodes(frames_.restate());
    if (!held_.memo.ended) return;
    // How it ends was decided. Nothing of it is in the machine, and ranks are told again.
    const journaled::Ended& end = *held_.memo.ended;
    feed(job_event::Cancel{end.exit_code == 0 ? "" : end.message, end.exit_code});
    to_nodes(frames_.stop(end.message));
  }

  // What was asked for is not in the journal; whoever asked was told that it will be done.
  void ask_again() {
    if (!life().before || asked_again_ || machine_.phase() != JobPhase::running) return;
    asked_again_ = true;
    for (const NodeId node : held_.draining) feed(job_event::DrainNode{node});
    for (const RankId rank : held_.evicting) feed(job_event::EvictRank{rank});
  }

  void feed(const JobEvent& event) {
    const std::uint64_t dropped = machine_.dropped();
    JobEffects effects = machine_.step(event, parts_.clock->now());
    if (machine_.dropped() == dropped) journal_.evidence(event);
    carry_out(std::move(effects));
    ask_again();
  }

  // A frame from a proven node that cannot be read is a bug of that node, not an attack: it ends the job.
  void on_frame(const NodeFrame& m) {
    const Result<void> read = guarded([&] { dispatch(m.node, m.message.get()); });
    if (!read) feed(job_event::NodeLost{m.node, read.error().message});
  }

  void dispatch(NodeId node, schemas::Message::Reader m) {
    switch (m.which()) {
      case schemas::Message::RANK_UP: return on_rank_up(m.getRankUp());
      case schemas::Message::RANK_REPORT: return on_rank_report(node, m.getRankReport());
      case schemas::Message::NODE_REPORT: return on_node_report(node, m.getNodeReport());
      case schemas::Message::PREPARED: {
        const auto p = m.getPrepared();
        return feed(job_event::RankPrepared{
            {p.getRank()}, read_generation(p.getGeneration()), read_digest(p.getPlanDigest()), {p.getStep()}});
      }
      case schemas::Message::STEP_DONE: {
        const DecisionRecord record = read_record(m.getStepDone().getRecord());
        account_.hear(record, m.getStepDone().getSeconds());
        return feed(job_event::StepFinal{record});
      }
      case schemas::Message::STEP_HISTORY:
        for (const auto step : m.getStepHistory().getSteps()) {
          account_.hear(read_record(step.getRecord()), step.getSeconds());
        }
        if (asked_for_steps_ == node) ask_for_steps();
        return;
      case schemas::Message::JOB_STATE: return on_job_state(node, m.getJobState());
      case schemas::Message::FINISHED: {
        const RankAccount account = read_account(m.getFinished());
        account_.about().rank_finished(account);
        return feed(job_event::RankFinished{account.rank,
                                            read_generation(m.getFinished().getGeneration()),
                                            {m.getFinished().getStep()},
                                            account.final_digest});
      }
      case schemas::Message::SAVED: return on_saved(m.getSaved());
      case schemas::Message::FAILED: {
        const auto f = m.getFailed();
        job_event::RankFailed failed{{f.getRank()},
                                     read_generation(f.getGeneration()),
                                     {static_cast<ErrorAction>(f.getAction()), f.getMessage().cStr()}};
        for (const auto peer : f.getLostPeers()) failed.lost_peers.push_back({peer});
        return feed(failed);
      }
      case schemas::Message::RANK_DOWN: {
        const auto d = m.getRankDown();
        return feed(job_event::RankDown{{d.getRank()}, d.getWhy().cStr(), d.getExpected()});
      }
      default: parts_.logger.warning("a message that no job understands", {{"kind", std::int64_t{m.which()}}});
    }
  }

  void on_rank_up(schemas::RankUp::Reader in) {
    peers_[{in.getRank()}].pid = in.getPid();
    kernel_variant_ = in.getKernelVariant().cStr();
    feed(job_event::RankUp{{in.getRank()}, kernel_variant_});
  }

  // Steps that only a former supervisor and ranks of one node had said: another node keeps them as well. One is asked at a
  // time, each once in a generation.
  void ask_for_steps() {
    asked_for_steps_.reset();
    const std::optional<Step> up_to = account_.about().gap();
    if (!up_to) return;
    for (const auto& [node, offered] : held_.nodes) {
      if (!asked_before_.insert(node).second) continue;
      asked_for_steps_ = node;
      return to_node(node, frames_.steps_wanted(account_.about().whole(), *up_to));
    }
  }
  void ask_again_for_steps() {
    asked_before_.clear();
    ask_for_steps();
  }

  void on_job_state(NodeId node, schemas::JobState::Reader in) {
    Result<job_event::NodeRestated> restated = read_job_state(in, node, account_.newest_heard());
    if (!restated) return feed(job_event::NodeLost{node, restated.error().message});
    for (const auto r : in.getLiving()) {
      peers_[{r.getRank()}].pid = r.getPid();
      if (r.getKernelVariant().size() > 0) kernel_variant_ = r.getKernelVariant().cStr();
    }
    if (in.getThreads() != 0) held_.threads[node] = in.getThreads();
    feed(*restated);
  }

  void on_rank_report(NodeId node, schemas::RankReport::Reader in) {
    RankReport report = read_holding(in.getHolding(), node, true);
    peers_[report.rank].ucx_address.assign(in.getUcxAddress().begin(), in.getUcxAddress().end());
    for (const auto record : in.getRecords()) account_.hear(read_record(record), 0);
    feed(job_event::RankReported{read_generation(in.getGeneration()), std::move(report)});
  }

  void on_node_report(NodeId node, schemas::NodeReport::Reader in) {
    std::vector<RankReport> left_behind;
    for (const auto holding : in.getLeftBehind()) left_behind.push_back(read_holding(holding, node, false));
    feed(job_event::NodeReported{node, read_generation(in.getGeneration()), std::move(left_behind)});
  }

  void on_saved(schemas::Saved::Reader in) {
    for (const auto s : in.getShards()) saved_[{s.getShard()}] = read_digest(s.getDigest());
    feed(job_event::RankSaved{{in.getRank()}, read_generation(in.getGeneration())});
  }

  void on_save_begun(const Result<std::string>& staging) {
    if (!staging) return feed(job_event::SaveCommitted{staging.error()});
    if (machine_.phase() != JobPhase::saving) return;
    to_nodes(frames_.save(*staging));
  }

  void on_save_done(const Result<Digest>& outcome) {
    account_.lose("save");
    feed(job_event::SaveCommitted{outcome ? Result<void>() : Result<void>(outcome.error())});
  }

  void carry_out(JobEffects effects) {
    for (const JobEffect& effect : effects) {
      journal_.decided(effect);
      std::visit([&](const auto& e) { carry_out(e); }, effect);
    }
    if (!effects.empty()) send(held_.cluster, view());
  }

  void carry_out(const job_effect::Note& e) {
    parts_.logger.info(e.text, {{"job", parts_.job.value}});
    if (last_note_ == e.text) return;
    last_note_ = e.text;
    to_follower(frames_.note(e.text));
  }

  void carry_out(const job_effect::StartRanks& e) {
    std::map<NodeId, std::vector<RankId>> by_node;
    for (const PlanRank& r : e.ranks) by_node[r.node].push_back(r.rank);
    promise(journal_.generation("ranks are started"), [this, by_node] {
      for (const auto& [node, ranks] : by_node) {
        to_node(node, frames_.start_ranks(ranks, threads_on(node, static_cast<std::uint32_t>(ranks.size()))));
      }
    });
  }

  // Of each rank there; the same for those that come later.
  std::uint32_t threads_on(NodeId node, std::uint32_t ranks) {
    if (parts_.admitted.submission.threads != 0) return parts_.admitted.submission.threads;
    const auto [at, first] = held_.threads.try_emplace(node, std::max(1U, held_.nodes[node].cores / ranks));
    return at->second;
  }

  void carry_out(const job_effect::Fence& e) {
    parts_.logger.info("fencing", {{"job", parts_.job.value}, {"generation", to_string(e.generation)}, {"why", e.why}});
    account_.begin_phase();
    promise(journal_.generation(e.why), [this, e] { to_nodes(frames_.fence(e, account_.known_step())); });
  }

  void carry_out(const job_effect::Intend& e) { to_nodes(frames_.intend(e.generation)); }
  // Never before its start, which waits for a promise.
  void carry_out(const job_effect::KillRank& e) {
    promises_.in_turn([this, e] { to_nodes(frames_.kill_rank(e)); });
  }

  void carry_out(const job_effect::NodeFree& e) {
    held_.draining.erase(e.node);
    send(held_.cluster, NodeDrained{e.node});
  }

  void carry_out(const job_effect::Incident& e) {
    const IncidentReport& i = e.report;
    account_.about().incident(i);
    journal_.incident(i, parts_.clock->now());
    parts_.logger.warning("an incident is over", {{"job", parts_.job.value},
                                                  {"kind", i.kind},
                                                  {"target", i.target},
                                                  {"why", i.why},
                                                  {"generation", to_string(i.generation)}});
  }

  void carry_out(const job_effect::Prepare& e) {
    account_.about().planned(e.plan, kernel_variant_);
    std::vector<JobFrames::UcxAddress> addresses;
    for (const PlanRank& r : e.plan.ranks) addresses.push_back(peers_[r.rank].ucx_address);
    to_nodes(frames_.prepare(e, std::move(addresses)));
  }

  void carry_out(const job_effect::Resume& e) {
    account_.lose_until_training("startup", "recovery");
    to_nodes(frames_.resume(e.generation));
    ask_again_for_steps();
  }

  void carry_out(const job_effect::Adopted& e) {
    account_.about().planned(e.plan, kernel_variant_);
    account_.lose_until_training("without supervisor", "without supervisor");
    ask_again_for_steps();
  }

  void carry_out(const job_effect::Report& e) {
    account_.report(e.record);
    journal_.record(e.record, e.record.step.value == frames_.last_step(), parts_.clock->now());
    to_follower(
        frames_.step(e.record, account_.tokens_per_second(), machine_.plan() ? machine_.plan()->rank_count() : 0));
  }

  void carry_out(const job_effect::Save&) {
    account_.begin_phase();
    send(held_.coordinator, BeginSave{parts_.admitted.submission.save_directory});
  }

  void carry_out(const job_effect::CommitSave&) {
    const AdmittedJob& a = parts_.admitted;
    Result<StateManifest> manifest = complete_manifest(a.config, a.lineage, machine_.final_step(),
                                                       account_.last() ? account_.last()->updates : a.updates, saved_);
    if (!manifest) return feed(job_event::SaveCommitted{manifest.error()});
    send(held_.coordinator, CommitSave{std::move(*manifest), a.config});
  }

  void carry_out(const job_effect::Stop& e) {
    account_.begin_phase();
    promise(journaled::Ended{parts_.job, static_cast<std::uint8_t>(e.exit_code), e.why},
            [this, e] { to_nodes(frames_.stop(e.why)); });
  }

  void carry_out(const job_effect::ArmDeadline& e) {
    const Duration left = e.at - parts_.clock->now();
    send_self({std::max<std::int64_t>(0, left.ns)}, JobDeadline{life().incarnation, e.number});
  }

  void carry_out(const job_effect::Ended& e) {
    account_.lose("stop");
    if (e.exit_code != 0) parts_.logger.warning("the job ended early", {{"job", parts_.job.value}, {"why", e.message}});
    promises_.in_turn([this, e] {
      send(held_.cluster,
           JobEnded{parts_.job, e.exit_code, e.message,
                    std::make_shared<transport::Frame>(make_frame(
                        frames_.ended(e, account_.about().has_steps() ? account_.about().json(parts_.version) : "")))});
      quit();
    });
  }

  JobView view() const {
    std::map<RankId, std::uint32_t> pids;
    for (const auto& [rank, peer] : peers_) pids[rank] = peer.pid;
    return make_view(machine_, account_, pids);
  }

  // The frames that `then` sends leave once `what` is on the disk.
  void promise(decltype(JournalEntry::what) what, std::function<void()> then) {
    held_.memo.note(what);
    promises_.make(parts_.journal, self(), std::move(what), std::move(then));
  }

  template <class Fill>
  void to_node(NodeId node, Fill fill) {
    send(held_.cluster, ToNode{node, std::make_shared<transport::Frame>(make_frame(fill))});
  }
  template <class Fill>
  void to_nodes(Fill fill) {
    for (const auto& [node, offered] : held_.nodes) to_node(node, fill);
  }
  template <class Fill>
  void to_follower(Fill fill) {
    send(held_.cluster, ToFollower{parts_.job, std::make_shared<transport::Frame>(make_frame(fill))});
  }

  struct Peer {
    std::uint32_t pid = 0;
    std::vector<kj::byte> ucx_address;
  };
  HeldJobSupervisor& held_;
  JobParts& parts_;
  JobAccount& account_;
  const JobFrames frames_;
  JobMachine machine_;
  JobJournal journal_;
  Promises promises_;
  std::map<RankId, Peer> peers_;
  std::map<ShardId, Digest> saved_;
  std::string kernel_variant_, last_note_;
  std::optional<NodeId> asked_for_steps_;
  std::set<NodeId> asked_before_;
  bool asked_again_ = false;
};

}  // namespace

caf::actor spawn_job_supervisor(Place place, JobParts parts) {
  auto held = std::make_shared<HeldJobSupervisor>(place.parent, std::move(parts));
  return spawn_supervised(std::move(place), bodies_of<JobSupervisor>(std::move(held)));
}

}  // namespace kintsugi::actors
