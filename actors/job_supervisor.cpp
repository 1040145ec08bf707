#include "actors/job_supervisor.hpp"

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>

#include "actors/checkpoint_coordinator.hpp"
#include "actors/report.hpp"
#include "engine/control/job_machine.hpp"
#include "engine/control/recovery_codec.hpp"
#include "engine/plan/cost.hpp"
#include "engine/plan/plan_codec.hpp"

namespace kintsugi::actors {

struct JobDeadline {
  std::uint64_t number = 0;
};

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::JobDeadline)

namespace kintsugi::actors {

namespace {

// The one budget that all deadlines of a job derive from: the death of a process is seen at once and its silence within
// two seconds, so this one is for a step that makes no progress though all live. No machine is slower than 1 GFLOP/s,
// and a minute is for whatever else it does.
Duration step_budget(const JobConfig& job) {
  constexpr double kSlowestFlops = 1e9, kMostSeconds = 24 * 3600;
  const double seconds_needed = step_flops(ModelLayout(job.model), job.batch) / kSlowestFlops;
  return seconds(60) + seconds(static_cast<std::int64_t>(std::min(seconds_needed, kMostSeconds)));
}

JobRequest make_request(const JobParts& parts) {
  const AdmittedJob& a = parts.admitted;
  return {parts.job,
          a.lineage,
          parts.epoch,
          a.config,
          a.submission.ranks,
          a.submission.nodes,
          !a.submission.save_directory.empty(),
          JobDeadlines::from_budget(step_budget(a.config))};
}

class JobSupervisor final : public caf::event_based_actor {
 public:
  JobSupervisor(caf::actor_config& config, std::shared_ptr<JobParts> parts)
      : caf::event_based_actor(config),
        parts_(std::move(*parts)),
        machine_(make_request(parts_)),
        report_(parts_.admitted, parts_.clock->now()),
        phase_began_(parts_.clock->now()) {}

  const char* name() const override { return "job supervisor"; }

  caf::behavior make_behavior() override {
    carry_out(machine_.start(parts_.clock->now()));
    return {
        [this](const NodeOffered& m) {
          nodes_[m.node] = m;
          feed(job_event::NodeReady{m.node, m.name, m.slots, m.rack});
        },
        [this](const NodeGone& m) {
          nodes_.erase(m.node);
          feed(job_event::NodeLost{m.node, m.why});
        },
        [this](const NodeFrame& m) { on_frame(m); },
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
  }

 private:
  void feed(const JobEvent& event) { carry_out(machine_.step(event, parts_.clock->now())); }

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
      case schemas::Message::STEP_DONE:
        step_seconds_ = m.getStepDone().getSeconds();
        return feed(job_event::StepFinal{read_record(m.getStepDone().getRecord())});
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
        return feed(job_event::RankFailed{{f.getRank()},
                                          read_generation(f.getGeneration()),
                                          {static_cast<ErrorAction>(f.getAction()), f.getMessage().cStr()}});
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

  void on_rank_report(NodeId node, schemas::RankReport::Reader in) {
    RankReport report = read_holding(in.getHolding(), node, true);
    peers_[report.rank].ucx_address.assign(in.getUcxAddress().begin(), in.getUcxAddress().end());
    for (const auto record : in.getRecords()) missed_.try_emplace({record.getStep()}, read_record(record));
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
    to_nodes([&](schemas::Message::Builder m) {
      auto save = m.initSave();
      save.setJob(parts_.job.value);
      save.setDirectory(*staging);
    });
  }

  void on_save_done(const Result<Digest>& outcome) {
    lose("save");
    feed(job_event::SaveCommitted{outcome ? Result<void>() : Result<void>(outcome.error())});
  }

  void carry_out(JobEffects effects) {
    for (const JobEffect& effect : effects) std::visit([&](const auto& e) { carry_out(e); }, effect);
    if (!effects.empty()) send(parts_.cluster, view());
  }

  void carry_out(const job_effect::Note& e) {
    parts_.logger.info(e.text, {{"job", parts_.job.value}});
    if (last_note_ == e.text) return;
    last_note_ = e.text;
    to_follower([&](schemas::Message::Builder m) {
      auto p = m.initProgress();
      p.setJob(parts_.job.value);
      p.setText(e.text);
      p.setSteps(last_step());
    });
  }

  void carry_out(const job_effect::StartRanks& e) {
    std::map<NodeId, std::vector<RankId>> by_node;
    for (const PlanRank& r : e.ranks) by_node[r.node].push_back(r.rank);
    for (const auto& [node, ranks] : by_node) {
      to_node(node, [&](schemas::Message::Builder m) {
        auto start = m.initStartRanks();
        start.setJob(parts_.job.value);
        auto list = start.initRanks(static_cast<unsigned>(ranks.size()));
        for (unsigned i = 0; i < list.size(); ++i) list.set(i, ranks[i].value);
        start.setThreads(threads_on(node, static_cast<std::uint32_t>(ranks.size())));
        start.setUcxOnly(parts_.admitted.submission.ucx_only);
      });
    }
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
    to_nodes([&](schemas::Message::Builder m) {
      auto fence = m.initFence();
      fence.setJob(parts_.job.value);
      fence.setLineage(parts_.admitted.lineage.value);
      write_generation(e.generation, fence.initGeneration());
      fence.setWhy(e.why);
      fence.setKnownStep(last_record_ ? last_record_->step.value : parts_.admitted.first.value);
    });
  }

  void carry_out(const job_effect::Intend& e) {
    to_nodes([&](schemas::Message::Builder m) {
      auto intend = m.initIntend();
      intend.setJob(parts_.job.value);
      write_generation(e.generation, intend.initGeneration());
    });
  }

  void carry_out(const job_effect::KillRank& e) {
    to_nodes([&](schemas::Message::Builder m) {
      auto kill = m.initKillRank();
      kill.setJob(parts_.job.value);
      kill.setRank(e.rank.value);
      kill.setWhy(e.why);
    });
  }

  void carry_out(const job_effect::NodeFree& e) { send(parts_.cluster, NodeDrained{e.node}); }

  void carry_out(const job_effect::Incident& e) {
    const IncidentReport& i = e.report;
    report_.incident(i);
    ++incidents_;
    parts_.logger.warning("an incident is over", {{"job", parts_.job.value},
                                                  {"kind", i.kind},
                                                  {"target", i.target},
                                                  {"why", i.why},
                                                  {"generation", to_string(i.generation)}});
  }

  void carry_out(const job_effect::Prepare& e) {
    report_.planned(e.plan, kernel_variant_);
    const std::string job_file = to_yaml(parts_.admitted.config);
    to_nodes([&](schemas::Message::Builder m) {
      auto prepare = m.initPrepare();
      prepare.setJob(parts_.job.value);
      prepare.setJobFile(job_file);
      write_plan(e.plan, prepare.initPlan());
      auto addresses = prepare.initUcxAddresses(e.plan.rank_count());
      for (unsigned i = 0; i < addresses.size(); ++i) {
        const auto& bytes = peers_[e.plan.ranks[i].rank].ucx_address;
        addresses.set(i, {bytes.data(), bytes.size()});
      }
      if (e.transition) write_transition(*e.transition, prepare.initTransition());
      prepare.setSteps(last_step());
      prepare.setResumeDirectory(parts_.admitted.submission.resume_directory);
      prepare.setStepBudgetMs(static_cast<std::uint64_t>(step_budget(parts_.admitted.config).ms()));
      prepare.setUcxOnly(parts_.admitted.submission.ucx_only);
    });
  }

  void carry_out(const job_effect::Resume& e) {
    lose(trained_ ? "recovery" : "startup");
    trained_ = true;
    to_nodes([&](schemas::Message::Builder m) {
      auto resume = m.initResume();
      resume.setJob(parts_.job.value);
      write_generation(e.generation, resume.initGeneration());
    });
  }

  // Of steps that became final while their root's words did not get here, members gave the records when they were fenced.
  void carry_out(const job_effect::Report& e) {
    for (auto at = missed_.begin(); at != missed_.end() && at->first < e.record.step; at = missed_.erase(at)) {
      if (!last_record_ || at->first > last_record_->step) report_.step_final(at->second, 0);
    }
    report_.step_final(e.record, step_seconds_);
    last_record_ = e.record;
    phase_began_ = parts_.clock->now();
    tokens_per_second_ =
        step_seconds_ > 0 ? static_cast<double>(parts_.admitted.config.batch.tokens_per_step()) / step_seconds_ : 0;
    to_follower([&](schemas::Message::Builder m) {
      auto p = m.initProgress();
      p.setJob(parts_.job.value);
      p.setStep(e.record.step.value);
      p.setSteps(last_step());
      p.setLoss(e.record.loss);
      p.setGradientNorm(e.record.gradient_norm);
      p.setLearningRate(e.record.learning_rate);
      p.setTokensPerSecond(tokens_per_second_);
      p.setRanks(machine_.plan() ? machine_.plan()->rank_count() : 0);
    });
  }

  void carry_out(const job_effect::Save&) {
    phase_began_ = parts_.clock->now();
    coordinator_ = spawn_checkpoint_coordinator(system(), this, save_cancelled_);
    send(coordinator_, BeginSave{parts_.admitted.submission.save_directory});
  }

  void carry_out(const job_effect::CommitSave&) {
    const JobConfig& job = parts_.admitted.config;
    const ModelLayout layout(job.model);
    StateManifest manifest;
    const Step step = machine_.final_step();
    manifest.position = {job_identity(job), step, last_record_ ? last_record_->updates : parts_.admitted.updates,
                         step.value * static_cast<std::uint64_t>(job.batch.sequences)};
    manifest.lineage = parts_.admitted.lineage;
    manifest.job_yaml = to_yaml(job);
    for (const auto& [id, digest] : saved_) {
      if (id.value < layout.shards().size()) manifest.shards.push_back({layout.shard(id), digest});
    }
    if (manifest.shards.size() != layout.shards().size()) {
      return feed(job_event::SaveCommitted{
          Error{ErrorAction::end_generation, "not every shard of the model was saved by its primary"}});
    }
    manifest.parameters = saved_parameters(layout.parameters());
    manifest.state_digest = state_digest(manifest);
    send(coordinator_, CommitSave{std::move(manifest), job});
  }

  void carry_out(const job_effect::Stop& e) {
    phase_began_ = parts_.clock->now();
    to_nodes([&](schemas::Message::Builder m) {
      auto stop = m.initStop();
      stop.setJob(parts_.job.value);
      stop.setWhy(e.why);
    });
  }

  void carry_out(const job_effect::ArmDeadline& e) {
    const Duration left = e.at - parts_.clock->now();
    delayed_send(this, std::chrono::nanoseconds(std::max<std::int64_t>(0, left.ns)), JobDeadline{e.number});
  }

  void carry_out(const job_effect::Ended& e) {
    lose("stop");
    if (e.exit_code != 0) parts_.logger.warning("the job ended early", {{"job", parts_.job.value}, {"why", e.message}});
    to_follower([&](schemas::Message::Builder m) {
      auto ended = m.initEnded();
      ended.setJob(parts_.job.value);
      ended.setExitCode(static_cast<std::uint8_t>(e.exit_code));
      ended.setMessage(e.message);
      if (report_.has_steps()) ended.setReport(report_.json(parts_.version));
    });
    send(parts_.cluster, JobEnded{parts_.job, e.exit_code, e.message});
    quit();
  }

  void lose(const char* cause) {
    const Instant now = parts_.clock->now();
    report_.lost(cause, (now - phase_began_).seconds());
    phase_began_ = now;
  }

  std::uint64_t last_step() const { return static_cast<std::uint64_t>(parts_.admitted.config.steps); }

  JobView view() const {
    JobView v;
    v.job = parts_.job;
    v.name = parts_.admitted.config.name;
    v.phase = to_string(machine_.phase());
    v.incidents = incidents_;
    v.step = machine_.final_step().value;
    v.steps = last_step();
    v.loss = last_record_ ? last_record_->loss : 0;
    v.tokens_per_second = tokens_per_second_;
    if (const auto& plan = machine_.plan()) {
      v.reason = plan->reason;
      v.generation = plan->generation;
      for (const PlanRank& r : plan->ranks) {
        const auto peer = peers_.find(r.rank);
        v.ranks.push_back({r.rank, r.node, peer == peers_.end() ? 0 : peer->second.pid});
      }
    }
    return v;
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

  JobParts parts_;
  JobMachine machine_;
  Report report_;
  Instant phase_began_;
  std::map<NodeId, NodeOffered> nodes_;
  std::map<NodeId, std::uint32_t> threads_;  // of each rank there
  std::map<RankId, Peer> peers_;
  std::map<ShardId, Digest> saved_;
  std::map<Step, DecisionRecord> missed_;  // reported, not known to the machine yet
  std::string kernel_variant_, last_note_;
  std::optional<DecisionRecord> last_record_;
  double step_seconds_ = 0, tokens_per_second_ = 0;
  std::uint64_t incidents_ = 0;
  bool trained_ = false;
  caf::actor coordinator_;
  std::shared_ptr<std::atomic<bool>> save_cancelled_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

caf::actor spawn_job_supervisor(caf::actor_system& system, JobParts parts) {
  return system.spawn<JobSupervisor>(std::make_shared<JobParts>(std::move(parts)));
}

}  // namespace kintsugi::actors
