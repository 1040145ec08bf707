#include "actors/cluster_supervisor.hpp"

#include <fmt/format.h>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "actors/cluster_frames.hpp"
#include "actors/cluster_status.hpp"
#include "actors/injection.hpp"
#include "actors/job_supervisor.hpp"
#include "actors/journal_writer.hpp"
#include "actors/mirrors.hpp"
#include "actors/node_links.hpp"
#include "actors/restart.hpp"
#include "actors/system.hpp"

namespace kintsugi::actors {

using transport::Link;

struct AdmissionDone {
  JobId job;
  Result<AdmittedJob> outcome;
};
struct ForgetAbsent {};

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::AdmissionDone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::ForgetAbsent)

namespace kintsugi::actors {

namespace {

class ClusterSupervisor final : public caf::event_based_actor {
 public:
  ClusterSupervisor(caf::actor_config& config, std::shared_ptr<ClusterParts> parts, std::shared_ptr<Inheritance> found)
      : caf::event_based_actor(config),
        parts_(std::move(*parts)),
        members_(found->state.next_node),
        absent_(found->state.nodes),
        next_job_(found->state.next_job.value),
        found_(std::move(found)),
        mirrors_(cluster_id(), epoch(),
                 [this](NodeId node, transport::Frame frame) { to_node(node, std::move(frame)); }) {}

  const char* name() const override { return "cluster supervisor"; }

  caf::behavior make_behavior() override {
    // A cluster that ends with its supervisor has nobody to take over for.
    is_mirrored_ = parts_.journal && !parts_.embedded;
    journal_ = spawn_journal_writer(system(), parts_.journal, this, is_mirrored_);
    mirrors_.begin(journal_);
    take_over_jobs();
    return {
        [this](const LinkUp& m) { links_[m.link.get()] = m.link; },
        [this](const LinkFrame& m) { on_frame(m); },
        [](const LinkPing& m) { m.link->pong(m.id); },
        [this](const LinkDown& m) { on_down(m); },
        [this](const AdmissionDone& m) { on_admission(m); },
        [this](const ToNode& m) { to_node(m.node, std::move(*m.frame)); },
        [this](const ToFollower& m) { to_follower(m.job, std::move(*m.frame)); },
        [this](const JobView& m) {
          if (const auto job = jobs_.find(m.job); job != jobs_.end()) job->second.view = m;
        },
        [this](const JobEnded& m) { on_job_ended(m); },
        [this](const NodeDrained& m) { let_go(m.node); },
        [this](const StopCluster& m) { stop(m.why); },
        [this](const PromiseKept&) { promises_.kept(); },
        [this](const JournalFailed& m) { fail(m.why); },
        [this](const Journaled& m) { mirrors_.on(m); },
        [this](const JournalCopied& m) { mirrors_.on(m); },
        [this](const ForgetAbsent&) { forget_absent(); },
    };
  }

  void on_exit() override {
    for (const auto& [key, link] : links_) link->close("the cluster ends");
    links_.clear();
    node_links_.clear();
    for (const auto& [id, job] : jobs_) send_exit(job.supervisor, caf::exit_reason::user_shutdown);
    jobs_.clear();
    send(journal_, JournalEnd{});
    journal_ = nullptr;
    mirrors_.end();
    parts_.done.signal();
  }

 private:
  static constexpr std::size_t kEndsKept = 4;  // with their reports

  struct Job {
    caf::actor supervisor;           // none while it is being admitted
    std::shared_ptr<Link> follower;  // may be none
    bool follows = false;            // the follower is told of progress and of the end
    JobView view;
    std::optional<CancelJob> cancelled;  // while it was being admitted
  };

  // --- the journal --------------------------------------------------------------------------------------------------
  std::uint32_t epoch() const { return parts_.journal ? parts_.journal->epoch() : 1; }
  std::uint64_t cluster_id() const { return parts_.journal ? parts_.journal->cluster_id() : 0; }

  void write_down(decltype(JournalEntry::what) what) { send(journal_, WriteDown{entry_now(std::move(what))}); }
  void promise(decltype(JournalEntry::what) what, std::function<void()> then) {
    promises_.make(journal_, this, std::move(what), std::move(then));
  }

  // Without a journal it could promise nothing. Its nodes go on, and wait for the next supervisor.
  void fail(const Error& why) {
    parts_.done.fail(why);
    quit();
  }

  // Jobs that the former supervisor had; who worked for it comes by itself.
  void take_over_jobs() {
    Duration longest = seconds(ResilienceConfig{}.orphan_limit);
    for (const auto& [id, admitted] : found_->jobs) {
      jobs_[id].follows = true;
      start_job(id, admitted, found_->adoptions.at(id), found_->state.jobs.at(id));
      longest = std::max(longest, seconds(admitted.config.resilience.orphan_limit));
    }
    for (const journaled::Ended& end : found_->state.ended)
      ended_.emplace(end.job, *ControlMessage::parse(past_end(end)));
    found_.reset();
    if (!absent_.empty()) delayed_send(this, std::chrono::nanoseconds(longest.ns), ForgetAbsent{});
  }

  void forget_absent() {
    for (const auto& [node, joined] : absent_) write_down(journaled::NodeLeft{node, "it did not come back"});
    absent_.clear();
  }

  bool is_client(const Link& link) const { return link.peer().hello.role == transport::LinkRole::client; }

  void on_frame(const LinkFrame& m) {
    check_for_stall();
    if (!links_.contains(m.link.get())) return;  // its end overtook it
    const Result<void> read = guarded([&] {
      if (is_client(*m.link))
        on_client(m.link, m.message.get());
      else
        on_node(m.link, m.message);
    });
    if (!read) m.link->close(read.error().message);
  }

  // --- nodes --------------------------------------------------------------------------------------------------------
  void on_node(const std::shared_ptr<Link>& link, const ControlMessage& message) {
    const auto m = message.get();
    const std::optional<NodeId> node = node_links_.node_of(link);
    if (!node) {
      if (m.which() != schemas::Message::NODE_HELLO) return link->close("a node says hello first");
      return join(link, m.getNodeHello());
    }
    if (m.which() == schemas::Message::JOURNAL_KEPT) return mirrors_.kept(*node, m.getJournalKept());
    const std::optional<JobId> job = job_of(m);
    if (!job) return link->close("a message that no node sends");
    if (const auto to = jobs_.find(*job); to != jobs_.end() && to->second.supervisor) {
      send(to->second.supervisor, NodeFrame{*node, message});
    } else if (m.which() == schemas::Message::JOB_STATE) {
      answer(link, stop_frame(*job, "it has ended"));
    }
  }

  void join(const std::shared_ptr<Link>& link, schemas::NodeHello::Reader hello) {
    Arrival arrival = read_hello(hello);
    if (!may_join(link, arrival)) return;
    parts_.logger.info("a node joined", {{"host", arrival.info.host}, {"slots", arrival.info.slots}});
    const std::optional<NodeId> former = former_number(absent_, arrival.former, arrival.info.incarnation);
    if (former)
      absent_.erase(*former);
    else
      arrival.jobs.clear();
    carry_out(members_.step(member_event::Joined{std::move(arrival.info), former}), link, arrival.jobs);
  }

  // Of one that has served a supervisor whose promises are not in this journal, nothing may be asked.
  bool may_join(const std::shared_ptr<Link>& link, const Arrival& arrival) {
    if (!parts_.journal) return true;
    const Tenure self{epoch(), parts_.journal->incarnation()};
    const std::uint32_t served = arrival.claim.served.epoch;
    switch (judge(arrival.claim, cluster_id(), self, parts_.journal->found().tenures)) {
      case Claim::known: return true;
      case Claim::stranger:
        refuse(link, {ErrorAction::refuse, fmt::format("it has served a supervisor (epoch {}) that this one (epoch {}) "
                                                       "does not descend from; start `kintsugi join` anew there",
                                                       served, epoch())});
        return false;
      case Claim::newer:
        refuse(link,
               {ErrorAction::refuse, fmt::format("this supervisor (epoch {}) has been succeeded by the one of epoch "
                                                 "{}: its state directory is an older copy",
                                                 epoch(), served)});
        fail({ErrorAction::refuse,
              fmt::format("this supervisor (epoch {}) has been succeeded: node process {} on {} has served the one of "
                          "epoch {}, of which the journal here knows nothing; this one ends. If that one is lost as "
                          "well, take over by `kintsugi supervise --adopt` with a new state directory",
                          epoch(), arrival.info.pid, arrival.info.host, served)});
        return false;
    }
    KINTSUGI_UNREACHABLE();
  }

  // `joining`: the link of the node that a welcome is for; `runs`: jobs that it has kept.
  void carry_out(const MemberEffects& effects, const std::shared_ptr<Link>& joining = nullptr,
                 const std::set<JobId>& runs = {}) {
    for (const MemberEffect& e : effects) {
      if (const auto* welcome = std::get_if<member_effect::Welcome>(&e)) {
        node_links_.add(welcome->node, joining);
        write_down(joined_entry(welcome->node, members_.find(welcome->node)->info));
        answer(joining, make_frame([&](schemas::Message::Builder m) {
                 auto w = m.initWelcome();
                 w.setNode(welcome->node.value);
                 w.setEpoch(epoch());
                 w.setClusterId(cluster_id());
               }));
        if (is_mirrored_) mirrors_.came(welcome->node, label(members_.find(welcome->node)->info, "rack"));
      } else if (const auto* offer = std::get_if<member_effect::Offer>(&e)) {
        const NodeInfo& info = members_.find(offer->node)->info;
        send(jobs_.at(offer->job).supervisor, NodeOffered{offer->node, member_name(offer->node, info), info.slots,
                                                          info.cores, label(info, "rack"), runs.contains(offer->job)});
      } else if (const auto* lost = std::get_if<member_effect::Lost>(&e)) {
        send(jobs_.at(lost->job).supervisor, NodeGone{lost->node, lost->why});
      }
    }
  }

  void to_node(NodeId node, transport::Frame frame) {
    Link* const link = node_links_.find(node);
    if (link == nullptr) return;  // the job hears of its end
    if (const Result<void> sent = link->send(std::move(frame)); !sent) {
      link->close("cannot send to the node: " + sent.error().message);
    }
  }

  void check_for_stall() {
    if (parts_.stall_guard != nullptr) parts_.stall_guard->check();
  }

  void on_down(const LinkDown& m) {
    check_for_stall();
    if (links_.erase(m.link.get()) == 0) return;
    if (const std::optional<NodeId> node = node_links_.node_of(m.link)) {
      parts_.logger.warning("a node is gone", {{"node", node->value}, {"why", m.why.message}});
      node_links_.remove(*node);
      if (is_mirrored_) mirrors_.went(*node);
      write_down(journaled::NodeLeft{*node, m.why.message});
      carry_out(members_.step(member_event::Left{*node, m.why.message}));
      return;
    }
    for (auto& [id, job] : jobs_) {
      if (job.follower != m.link) continue;
      job.follower = nullptr;
      if (parts_.embedded) cancel(job, {"whoever started it is gone", 130});
    }
  }

  // --- clients ------------------------------------------------------------------------------------------------------
  void on_client(const std::shared_ptr<Link>& link, schemas::Message::Reader m) {
    switch (m.which()) {
      case schemas::Message::SUBMIT: return submit(link, m.getSubmit());
      case schemas::Message::FOLLOW: return follow(link, {m.getFollow().getJob()});
      case schemas::Message::CANCEL:
        return for_job(link, {m.getCancel().getJob()}, [this](Job& job) { cancel(job, {"it was cancelled", 130}); });
      case schemas::Message::PAUSE_JOB:
        return for_job(link, {m.getPauseJob()}, [this](Job& job) { tell(job, PauseJob{}); });
      case schemas::Message::RESUME_JOB:
        return for_job(link, {m.getResumeJob()}, [this](Job& job) { tell(job, ResumeJob{}); });
      case schemas::Message::STATUS:
        return answer(link, make_frame([&](schemas::Message::Builder b) { b.setStatusReply(status()); }));
      case schemas::Message::INJECT: return inject(link, m.getInject());
      case schemas::Message::DRAIN: return drain(link, {m.getDrain()});
      case schemas::Message::EVICT: return evict(link, {m.getEvict()});
      case schemas::Message::SHUTDOWN: return stop("a client asked for the end of the cluster");
      default: return link->close("a message that no client sends");
    }
  }

  void answer(const std::shared_ptr<Link>& link, transport::Frame frame) {
    if (const Result<void> sent = link->send(std::move(frame)); !sent) link->close(sent.error().message);
  }
  void refuse(const std::shared_ptr<Link>& link, const Error& why) {
    if (link) answer(link, refusal(why));
  }

  void submit(const std::shared_ptr<Link>& link, schemas::Submit::Reader in) {
    if (stopping_) return refuse(link, {ErrorAction::refuse, "the cluster is ending; submit to another one"});
    if (!jobs_.empty()) {
      const auto& [id, job] = *jobs_.begin();
      return refuse(link,
                    {ErrorAction::refuse,
                     fmt::format("job {} '{}' is {}, and this version runs one job at a time; wait for its end, or "
                                 "end it with `kintsugi cancel {}`",
                                 id.value, job.view.name, job.view.phase, id.value)});
    }
    const JobId id{next_job_++};
    Job& job = jobs_[id];
    job.follower = link;
    job.follows = in.getFollow();
    job.view.job = id;
    job.view.name = in.getSource().cStr();
    job.view.phase = "being checked";
    Submission s = read_submission(in);
    // It reads all of the data: not in the mailbox that answers pings.
    system().spawn<caf::detached>([owner = caf::actor(this), id, s = std::move(s)](caf::event_based_actor* self) {
      self->send(owner, AdmissionDone{id, admit(s)});
    });
  }

  void on_admission(const AdmissionDone& m) {
    const auto found = jobs_.find(m.job);
    KINTSUGI_ASSERT(found != jobs_.end());
    Job& job = found->second;
    if (!m.outcome || job.cancelled) {
      if (m.outcome)
        refuse(job.follower, {ErrorAction::cancelled, job.cancelled->why});
      else
        refuse(job.follower, m.outcome.error());
      jobs_.erase(found);
      if (stopping_) end();
      return;
    }
    // Whoever hears that it is accepted may rely on it.
    promise(submitted_entry(m.job, *m.outcome),
            [this, id = m.job, admitted = *m.outcome] { on_submitted(id, admitted); });
  }

  void on_submitted(JobId id, const AdmittedJob& admitted) {
    Job& job = jobs_.at(id);
    if (job.cancelled) {
      write_down(journaled::Ended{id, 130, job.cancelled->why});
      refuse(job.follower, {ErrorAction::cancelled, job.cancelled->why});
      jobs_.erase(id);
      if (stopping_) end();
      return;
    }
    if (job.follower) answer(job.follower, acceptance(id));
    start_job(id, admitted);
  }

  void start_job(JobId id, const AdmittedJob& admitted, std::optional<Adoption> adoption = std::nullopt,
                 std::optional<RestartJob> before = std::nullopt) {
    Job& job = jobs_[id];
    job.view.job = id;
    job.view.name = admitted.config.name;
    job.supervisor =
        spawn_job_supervisor(system(), {id, epoch(), admitted, std::move(adoption), std::move(before), parts_.version,
                                        parts_.clock, parts_.logger.with_component("job"), this, journal_});
    carry_out(members_.step(member_event::JobWants{id}));
  }

  // The newest follower is the one that is told.
  void follow(const std::shared_ptr<Link>& link, JobId wanted) {
    const auto job = jobs_.find(wanted);
    if (const auto ended = ended_.find(wanted); ended != ended_.end()) {
      static_cast<void>(link->send(ended->second.copy_frame()));
      return;
    }
    if (job == jobs_.end() || !job->second.supervisor) {
      return refuse(link, {ErrorAction::refuse, fmt::format("job {} has ended, or never was", wanted.value)});
    }
    job->second.follower = link;
    job->second.follows = true;
    answer(link, acceptance(wanted));
  }

  void cancel(Job& job, CancelJob why) {
    if (job.supervisor)
      send(job.supervisor, why);
    else
      job.cancelled = std::move(why);
  }

  // Does `work` on the job that a client means and says so; job 0: the only one.
  template <class Work>
  void for_job(const std::shared_ptr<Link>& link, JobId wanted, Work work) {
    const auto job = wanted.value == 0 ? jobs_.begin() : jobs_.find(wanted);
    if (job == jobs_.end()) {
      const std::string which = wanted.value == 0 ? "there is no job" : fmt::format("there is no job {}", wanted.value);
      return refuse(link, {ErrorAction::refuse, which + "; `kintsugi status` shows what runs"});
    }
    work(job->second);
    answer(link, acceptance(job->first));
  }

  template <class Command>
  void tell(const Job& job, Command command) {
    if (job.supervisor) send(job.supervisor, command);
  }

  void inject(const std::shared_ptr<Link>& link, schemas::Inject::Reader in) {
    const auto target = in.getTarget();
    if (target.isSupervisor()) {
      ::raise(signal_of(in.getFault()));
      return;
    }
    const std::optional<NodeId> node = target.isNode() ? NodeId{target.getNode()} : node_of_rank({target.getRank()});
    Link* const at = node ? node_links_.find(*node) : nullptr;
    if (at == nullptr) {
      return refuse(link, {ErrorAction::refuse, fmt::format("there is no {} {}; `kintsugi status` shows what runs",
                                                            target.isNode() ? "node" : "rank",
                                                            target.isNode() ? target.getNode() : target.getRank())});
    }
    parts_.logger.warning("a fault is injected", {{"node", node->value}, {"fault", std::int64_t(in.getFault())}});
    static_cast<void>(at->send(make_frame([&](schemas::Message::Builder m) { m.setInject(in); })));
    answer(link, acceptance({}));
  }

  // Of the job first, if one has the node; then the node leaves.
  void drain(const std::shared_ptr<Link>& link, NodeId node) {
    const Member* member = members_.find(node);
    if (member == nullptr) {
      return refuse(link, {ErrorAction::refuse,
                           fmt::format("there is no node {}; `kintsugi status` shows what runs", node.value)});
    }
    if (member->lease)
      send(jobs_.at(*member->lease).supervisor, DrainNodeOfJob{node});
    else
      let_go(node);
    answer(link, acceptance({}));
  }

  void let_go(NodeId node) {
    if (Link* const link = node_links_.find(node)) {
      static_cast<void>(link->send(make_frame([](schemas::Message::Builder m) { m.setLeave("it was drained"); })));
    }
  }

  void evict(const std::shared_ptr<Link>& link, RankId rank) {
    for (auto& [id, job] : jobs_) {
      const auto& ranks = job.view.ranks;
      if (std::none_of(ranks.begin(), ranks.end(), [&](const JobView::Rank& r) { return r.rank == rank; })) continue;
      send(job.supervisor, EvictRankOfJob{rank});
      return answer(link, acceptance(id));
    }
    refuse(link,
           {ErrorAction::refuse, fmt::format("there is no rank {}; `kintsugi status` shows what runs", rank.value)});
  }

  std::optional<NodeId> node_of_rank(RankId rank) const {
    for (const auto& [id, job] : jobs_) {
      for (const JobView::Rank& r : job.view.ranks) {
        if (r.rank == rank) return r.node;
      }
    }
    return std::nullopt;
  }

  void to_follower(JobId id, transport::Frame frame) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end() || !job->second.follower || !job->second.follows) return;
    const std::shared_ptr<Link>& link = job->second.follower;
    const Result<void> sent = link->send(std::move(frame));
    // A client that does not keep up loses its link rather than the one frame that may be the end.
    if (!sent) link->close("the client is too slow: " + sent.error().message);
  }

  void on_job_ended(const JobEnded& m) {
    parts_.logger.info("a job ended", {{"job", m.job.value}, {"exit_code", m.exit_code}, {"why", m.message}});
    const ControlMessage told = *ControlMessage::parse(std::move(*m.told));
    to_follower(m.job, told.copy_frame());
    // A follower that lost its link may come late.
    ended_.emplace(m.job, told);
    while (ended_.size() > kEndsKept) ended_.erase(ended_.begin());
    jobs_.erase(m.job);
    carry_out(members_.step(member_event::JobEnded{m.job}));
    if (stopping_) end();
  }

  std::string status() const {
    std::vector<JobView> views;
    for (const auto& [id, job] : jobs_) views.push_back(job.view);
    return status_json(members_, node_links_.addresses(), mirrors_.keepers(), views, epoch(), parts_.version);
  }

  void stop(const std::string& why) {
    if (stopping_) return;
    stopping_ = true;
    for (auto& [id, job] : jobs_) cancel(job, {why, 130});
    if (jobs_.empty()) end();
  }

  void end() {
    for (const auto& [node, link] : node_links_) {
      static_cast<void>(link->send(make_frame([](schemas::Message::Builder m) { m.setLeave("the cluster ends"); })));
      write_down(journaled::NodeLeft{node, "the cluster ends"});
    }
    quit();
  }

  ClusterParts parts_;
  caf::actor journal_;
  Promises promises_;
  std::map<const Link*, std::shared_ptr<Link>> links_;  // all that are up, of nodes and clients
  Membership members_;
  NodeLinks node_links_;                            // of every member
  std::map<NodeId, journaled::NodeJoined> absent_;  // a former supervisor's, not back yet
  std::map<JobId, ControlMessage> ended_;           // the newest ends
  std::map<JobId, Job> jobs_;
  std::uint32_t next_job_;  // never reused; 0 means "the only one"
  bool stopping_ = false;
  std::shared_ptr<Inheritance> found_;  // until it is taken over
  bool is_mirrored_ = false;
  Mirrors mirrors_;
};

}  // namespace

Result<caf::actor> spawn_cluster_supervisor(caf::actor_system& system, ClusterParts parts) {
  KINTSUGI_TRY_ASSIGN(Inheritance found, inherit(parts.journal.get()));
  return caf::actor(system.spawn<ClusterSupervisor>(std::make_shared<ClusterParts>(std::move(parts)),
                                                    std::make_shared<Inheritance>(std::move(found))));
}

}  // namespace kintsugi::actors
