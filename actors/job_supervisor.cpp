#include "actors/job_supervisor.hpp"

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <set>

#include "actors/checkpoint_coordinator.hpp"
#include "actors/job_frames.hpp"
#include "actors/job_journal.hpp"
#include "actors/report.hpp"
#include "actors/restart.hpp"
#include "actors/save_folder.hpp"
#include "engine/control/recovery_codec.hpp"
#include "engine/plan/plan_codec.hpp"

namespace kintsugi::actors {

struct JobDeadline {
  std::uint64_t number = 0;
};

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::JobDeadline)

namespace kintsugi::actors {

namespace {

class JobSupervisor final : public caf::event_based_actor {
 public:
  JobSupervisor(caf::actor_config& config, std::shared_ptr<JobParts> parts)
      : caf::event_based_actor(config),
        parts_(std::move(*parts)),
        frames_(parts_.job, parts_.admitted),
        machine_(job_request(parts_.job, parts_.epoch, parts_.admitted)),
        journal_(machine_, parts_.journal),
        before_(parts_.before ? reported_before(*parts_.before, {parts_.clock->now(), wall_clock_ns()})
                              : ReportedBefore{parts_.clock->now(), {}}),
        report_(parts_.admitted, before_.began),
        phase_began_(parts_.clock->now()),
        reported_(parts_.admitted.first) {}

  const char* name() const override { return "job supervisor"; }

  caf::behavior make_behavior() override {
    const Instant now = parts_.clock->now();
    if (parts_.adoption) last_record_ = parts_.adoption->record;
    for (const IncidentReport& incident : before_.incidents) report_.incident(incident);
    carry_out(parts_.adoption ? machine_.adopt(*parts_.adoption, now) : machine_.start(now));
    return {
        [this](const NodeOffered& m) {
          nodes_[m.node] = m;
          feed(job_event::NodeReady{m.node, m.name, m.slots, m.rack, m.runs_this_job});
        },
        [this](const NodeGone& m) {
          nodes_.erase(m.node);
          feed(job_event::NodeLost{m.node, m.why});
        },
        [this](const NodeFrame& m) { on_frame(m); },
        [this](const PromiseKept&) { promises_.kept(); },
        [this](const CancelJob& m) {
          *save_cancelled_ = true;
          feed(job_event::Cancel{m.why, m.exit_code});
        },
        [this](const DrainNodeOfJob& m) { feed(job_event::DrainNode{m.node}); },
        [this](const EvictRankOfJob& m) { feed(job_event::EvictRank{m.rank}); },
        [this](const PauseJob&) { feed(job_event::PauseJob{}); },
        [this](const ResumeJob&) { feed(job_event::ResumeJob{}); },
        [this](const JobDeadline& m) { feed(job_event::DeadlinePassed{m.number}); },
        [this](const SaveBegun& m) { on_save_begun(m.staging); },
        [this](const SaveDone& m) { on_save_done(m.outcome); },
    };
  }

  void on_exit() override {
    *save_cancelled_ = true;
    if (coordinator_) caf::anon_send(coordinator_, EndSave{});
    coordinator_ = nullptr;
    parts_.cluster = nullptr;
    parts_.journal = nullptr;
  }

 private:
  void feed(const JobEvent& event) {
    const std::uint64_t dropped = machine_.dropped();
    JobEffects effects = machine_.step(event, parts_.clock->now());
    if (machine_.dropped() == dropped) journal_.evidence(event);
    carry_out(std::move(effects));
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
        hear(record, m.getStepDone().getSeconds());
        return feed(job_event::StepFinal{record});
      }
      case schemas::Message::STEP_HISTORY:
        for (const auto step : m.getStepHistory().getSteps()) hear(read_record(step.getRecord()), step.getSeconds());
        if (asked_for_steps_ == node) ask_for_steps();
        return;
      case schemas::Message::JOB_STATE: return on_job_state(node, m.getJobState());
      case schemas::Message::FINISHED: {
        const RankAccount account = read_account(m.getFinished());
        report_.rank_finished(account);
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

  // Twice is once. Of a step before the newest that is reported it fills a place in the report; a later one waits until the
  // machine knows that it is final.
  void hear(const DecisionRecord& record, double seconds) {
    if (record.lineage != parts_.admitted.lineage) return;
    if (record.step <= reported_) return report_.step_final(record, seconds, parts_.clock->now());
    const auto [at, fresh] = heard_.try_emplace(record.step, Heard{record, seconds});
    if (!fresh && (record.generation > at->second.record.generation || at->second.seconds == 0)) {
      at->second = {record, seconds};
    }
  }

  // Steps that only a former supervisor and ranks of one node had said: another node keeps them as well. One is asked at a
  // time, each once in a generation.
  void ask_for_steps() {
    asked_for_steps_.reset();
    const std::optional<Step> up_to = report_.gap();
    if (!up_to) return;
    for (const auto& [node, offered] : nodes_) {
      if (!asked_before_.insert(node).second) continue;
      asked_for_steps_ = node;
      return to_node(node, frames_.steps_wanted(report_.whole(), *up_to));
    }
  }
  void ask_again_for_steps() {
    asked_before_.clear();
    ask_for_steps();
  }

  void on_job_state(NodeId node, schemas::JobState::Reader in) {
    Result<job_event::NodeRestated> restated =
        read_job_state(in, node, heard_.empty() ? std::nullopt : std::optional(heard_.rbegin()->second.record));
    if (!restated) return feed(job_event::NodeLost{node, restated.error().message});
    for (const auto r : in.getLiving()) {
      peers_[{r.getRank()}].pid = r.getPid();
      if (r.getKernelVariant().size() > 0) kernel_variant_ = r.getKernelVariant().cStr();
    }
    if (in.getThreads() != 0) threads_[node] = in.getThreads();
    feed(*restated);
  }

  void on_rank_report(NodeId node, schemas::RankReport::Reader in) {
    RankReport report = read_holding(in.getHolding(), node, true);
    peers_[report.rank].ucx_address.assign(in.getUcxAddress().begin(), in.getUcxAddress().end());
    for (const auto record : in.getRecords()) hear(read_record(record), 0);
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
    lose("save");
    feed(job_event::SaveCommitted{outcome ? Result<void>() : Result<void>(outcome.error())});
  }

  void carry_out(JobEffects effects) {
    for (const JobEffect& effect : effects) {
      journal_.decided(effect);
      std::visit([&](const auto& e) { carry_out(e); }, effect);
    }
    if (!effects.empty()) send(parts_.cluster, view());
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
    const auto [at, first] = threads_.try_emplace(node, std::max(1U, nodes_[node].cores / ranks));
    return at->second;
  }

  void carry_out(const job_effect::Fence& e) {
    parts_.logger.info("fencing", {{"job", parts_.job.value}, {"generation", to_string(e.generation)}, {"why", e.why}});
    phase_began_ = parts_.clock->now();
    promise(journal_.generation(e.why), [this, e] { to_nodes(frames_.fence(e, known_step())); });
  }

  // Of a few steps before the newest, members say again what a rank may have decided and not got to say.
  Step known_step() const {
    constexpr std::uint64_t kSaidAgain = 64;
    return std::max(report_.whole(), Step{reported_.value - std::min(reported_.value, kSaidAgain)});
  }

  void carry_out(const job_effect::Intend& e) { to_nodes(frames_.intend(e.generation)); }
  // Never before its start, which waits for a promise.
  void carry_out(const job_effect::KillRank& e) {
    promises_.in_turn([this, e] { to_nodes(frames_.kill_rank(e)); });
  }

  void carry_out(const job_effect::NodeFree& e) { send(parts_.cluster, NodeDrained{e.node}); }

  void carry_out(const job_effect::Incident& e) {
    const IncidentReport& i = e.report;
    report_.incident(i);
    journal_.incident(i, parts_.clock->now());
    parts_.logger.warning("an incident is over", {{"job", parts_.job.value},
                                                  {"kind", i.kind},
                                                  {"target", i.target},
                                                  {"why", i.why},
                                                  {"generation", to_string(i.generation)}});
  }

  void carry_out(const job_effect::Prepare& e) {
    report_.planned(e.plan, kernel_variant_);
    std::vector<JobFrames::UcxAddress> addresses;
    for (const PlanRank& r : e.plan.ranks) addresses.push_back(peers_[r.rank].ucx_address);
    to_nodes(frames_.prepare(e, std::move(addresses)));
  }

  void carry_out(const job_effect::Resume& e) {
    lose(trained_ ? "recovery" : "startup");
    trained_ = true;
    to_nodes(frames_.resume(e.generation));
    ask_again_for_steps();
  }

  void carry_out(const job_effect::Adopted& e) {
    report_.planned(e.plan, kernel_variant_);
    lose("without supervisor");
    trained_ = true;
    ask_again_for_steps();
  }

  // Steps whose root's words did not get here in time come in what members say at a fence, or nodes after a restart.
  void carry_out(const job_effect::Report& e) {
    heard_.try_emplace(e.record.step, Heard{e.record, 0});
    double seconds = 0;
    for (auto at = heard_.begin(); at != heard_.end() && at->first <= e.record.step; at = heard_.erase(at)) {
      if (at->first <= reported_) continue;
      seconds = at->second.seconds;
      report_.step_final(at->second.record, seconds, parts_.clock->now());
    }
    reported_ = e.record.step;
    last_record_ = e.record;
    phase_began_ = parts_.clock->now();
    journal_.record(e.record, e.record.step.value == frames_.last_step(), phase_began_);
    tokens_per_second_ =
        seconds > 0 ? static_cast<double>(parts_.admitted.config.batch.tokens_per_step()) / seconds : 0;
    to_follower(frames_.step(e.record, tokens_per_second_, machine_.plan() ? machine_.plan()->rank_count() : 0));
  }

  void carry_out(const job_effect::Save&) {
    phase_began_ = parts_.clock->now();
    coordinator_ = spawn_checkpoint_coordinator(system(), this, save_cancelled_);
    send(coordinator_, BeginSave{parts_.admitted.submission.save_directory});
  }

  void carry_out(const job_effect::CommitSave&) {
    const AdmittedJob& a = parts_.admitted;
    Result<StateManifest> manifest = complete_manifest(a.config, a.lineage, machine_.final_step(),
                                                       last_record_ ? last_record_->updates : a.updates, saved_);
    if (!manifest) return feed(job_event::SaveCommitted{manifest.error()});
    send(coordinator_, CommitSave{std::move(*manifest), a.config});
  }

  void carry_out(const job_effect::Stop& e) {
    phase_began_ = parts_.clock->now();
    promise(journaled::Ended{parts_.job, static_cast<std::uint8_t>(e.exit_code), e.why},
            [this, e] { to_nodes(frames_.stop(e.why)); });
  }

  void carry_out(const job_effect::ArmDeadline& e) {
    const Duration left = e.at - parts_.clock->now();
    delayed_send(this, std::chrono::nanoseconds(std::max<std::int64_t>(0, left.ns)), JobDeadline{e.number});
  }

  void carry_out(const job_effect::Ended& e) {
    lose("stop");
    if (e.exit_code != 0) parts_.logger.warning("the job ended early", {{"job", parts_.job.value}, {"why", e.message}});
    promises_.in_turn([this, e] {
      send(parts_.cluster, JobEnded{parts_.job, e.exit_code, e.message,
                                    std::make_shared<transport::Frame>(make_frame(
                                        frames_.ended(e, report_.has_steps() ? report_.json(parts_.version) : "")))});
      quit();
    });
  }

  void lose(const char* cause) {
    const Instant now = parts_.clock->now();
    report_.lost(cause, (now - phase_began_).seconds());
    phase_began_ = now;
  }

  JobView view() const {
    JobView v;
    v.job = parts_.job;
    v.name = parts_.admitted.config.name;
    v.phase = to_string(machine_.phase());
    v.incidents = machine_.incidents();
    v.step = machine_.final_step().value;
    v.steps = frames_.last_step();
    v.loss = last_record_ ? last_record_->loss : 0;
    v.tokens_per_second = tokens_per_second_;
    if (const auto& plan = machine_.plan()) {
      v.reason = plan->reason;
      v.generation = plan->generation;
      std::map<RankId, JobView::Rank> ranks;
      for (const PlanRank& r : plan->ranks) {
        const auto peer = peers_.find(r.rank);
        ranks[r.rank] = {r.rank, r.node, peer == peers_.end() ? 0 : peer->second.pid};
      }
      for (const ShardHolders& shard : plan->shards) {
        ++ranks.at(shard.primary).primaries;
        for (const RankId replica : shard.replicas) ++ranks.at(replica).replicas;
      }
      for (const auto& [id, rank] : ranks) v.ranks.push_back(rank);
    }
    return v;
  }

  // The frames that `then` sends leave once `what` is on the disk.
  void promise(decltype(JournalEntry::what) what, std::function<void()> then) {
    promises_.make(parts_.journal, this, std::move(what), std::move(then));
  }

  template <class Fill>
  void to_node(NodeId node, Fill fill) {
    send(parts_.cluster, ToNode{node, std::make_shared<transport::Frame>(make_frame(fill))});
  }
  template <class Fill>
  void to_nodes(Fill fill) {
    for (const auto& [node, offered] : nodes_) to_node(node, fill);
  }
  template <class Fill>
  void to_follower(Fill fill) {
    send(parts_.cluster, ToFollower{parts_.job, std::make_shared<transport::Frame>(make_frame(fill))});
  }

  struct Peer {
    std::uint32_t pid = 0;
    std::vector<kj::byte> ucx_address;
  };
  struct Heard {
    DecisionRecord record;
    double seconds = 0;
  };

  JobParts parts_;
  const JobFrames frames_;
  JobMachine machine_;
  JobJournal journal_;
  Promises promises_;
  const ReportedBefore before_;
  Report report_;
  Instant phase_began_;
  std::map<NodeId, NodeOffered> nodes_;
  std::map<NodeId, std::uint32_t> threads_;  // of each rank there
  std::map<RankId, Peer> peers_;
  std::map<ShardId, Digest> saved_;
  std::map<Step, Heard> heard_;  // final, as members say, and not in the report yet
  Step reported_;
  std::optional<NodeId> asked_for_steps_;
  std::set<NodeId> asked_before_;
  std::string kernel_variant_, last_note_;
  std::optional<DecisionRecord> last_record_;
  double tokens_per_second_ = 0;
  bool trained_ = false;
  caf::actor coordinator_;
  std::shared_ptr<std::atomic<bool>> save_cancelled_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

caf::actor spawn_job_supervisor(caf::actor_system& system, JobParts parts) {
  return system.spawn<JobSupervisor>(std::make_shared<JobParts>(std::move(parts)));
}

}  // namespace kintsugi::actors
