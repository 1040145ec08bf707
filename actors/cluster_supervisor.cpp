#include "actors/cluster_supervisor.hpp"

#include <fmt/format.h>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <algorithm>
#include <map>
#include <optional>

#include "actors/cluster_status.hpp"
#include "actors/injection.hpp"
#include "actors/job_supervisor.hpp"
#include "actors/system.hpp"

namespace kintsugi::actors {

using transport::Link;

struct AdmissionDone {
  JobId job;
  Result<AdmittedJob> outcome;
};
struct StopCluster {
  std::string why;
};

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::AdmissionDone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::StopCluster)

namespace kintsugi::actors {

namespace {

struct SupervisorParts {
  std::uint32_t epoch = 1;
  bool embedded = false;
  std::string version;
  Logger logger;
  const Clock* clock = nullptr;  // outlives the actor
  Event done;
};

class ClusterSupervisor final : public caf::event_based_actor {
 public:
  ClusterSupervisor(caf::actor_config& config, std::shared_ptr<SupervisorParts> parts)
      : caf::event_based_actor(config), parts_(std::move(*parts)) {}

  const char* name() const override { return "cluster supervisor"; }

  caf::behavior make_behavior() override {
    return {
        [this](const LinkUp& m) { links_[m.link.get()] = m.link; },
        [this](const LinkFrame& m) { on_frame(m); },
        [](const LinkPing& m) { m.link->pong(m.id); },
        [this](const LinkDown& m) { on_down(m); },
        [this](const AdmissionDone& m) { on_admission(m); },
        [this](const ToNode& m) { to_node(m); },
        [this](const ToFollower& m) { to_follower(m); },
        [this](const JobView& m) {
          if (const auto job = jobs_.find(m.job); job != jobs_.end()) job->second.view = m;
        },
        [this](const JobEnded& m) { on_job_ended(m); },
        [this](const NodeDrained& m) { let_go(m.node); },
        [this](const StopCluster& m) { stop(m.why); },
    };
  }

  void on_exit() override {
    for (const auto& [key, link] : links_) link->close("the cluster ends");
    links_.clear();
    node_links_.clear();
    jobs_.clear();
    parts_.done.signal();
  }

 private:
  struct Job {
    caf::actor supervisor;           // none while it is being admitted
    std::shared_ptr<Link> follower;  // may be none
    bool follows = false;            // the follower is told of progress and of the end
    JobView view;
    std::optional<CancelJob> cancelled;  // while it was being admitted
  };

  bool is_client(const Link& link) const { return link.peer().hello.role == transport::LinkRole::client; }

  void on_frame(const LinkFrame& m) {
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
    const std::optional<NodeId> node = node_of(link);
    if (!node) {
      if (m.which() != schemas::Message::NODE_HELLO) return link->close("a node says hello first");
      return join(link, m.getNodeHello());
    }
    const std::optional<JobId> job = job_of(m);
    if (!job) return link->close("a message that no node sends");
    if (const auto to = jobs_.find(*job); to != jobs_.end() && to->second.supervisor) {
      send(to->second.supervisor, NodeFrame{*node, message});
    }
  }

  static std::optional<JobId> job_of(schemas::Message::Reader m) {
    switch (m.which()) {
      case schemas::Message::RANK_UP: return JobId{m.getRankUp().getJob()};
      case schemas::Message::RANK_REPORT: return JobId{m.getRankReport().getJob()};
      case schemas::Message::NODE_REPORT: return JobId{m.getNodeReport().getJob()};
      case schemas::Message::PREPARED: return JobId{m.getPrepared().getJob()};
      case schemas::Message::STEP_DONE: return JobId{m.getStepDone().getJob()};
      case schemas::Message::FINISHED: return JobId{m.getFinished().getJob()};
      case schemas::Message::SAVED: return JobId{m.getSaved().getJob()};
      case schemas::Message::FAILED: return JobId{m.getFailed().getJob()};
      case schemas::Message::RANK_DOWN: return JobId{m.getRankDown().getJob()};
      default: return std::nullopt;
    }
  }

  std::optional<NodeId> node_of(const std::shared_ptr<Link>& link) const {
    for (const auto& [node, its] : node_links_) {
      if (its == link) return node;
    }
    return std::nullopt;
  }

  void join(const std::shared_ptr<Link>& link, schemas::NodeHello::Reader hello) {
    NodeInfo info{hello.getHostname().cStr(),
                  hello.getSlots(),
                  hello.getCores(),
                  hello.getMemoryBytes(),
                  hello.getPid(),
                  {hello.getIncarnation()},
                  hello.getKernelVariant().cStr(),
                  {},
                  hello.getVersion().cStr()};
    for (const auto label : hello.getLabels()) info.labels.emplace_back(label.cStr());
    parts_.logger.info("a node joined", {{"host", info.host}, {"slots", info.slots}});
    carry_out(members_.step(member_event::Joined{std::move(info)}), link);
  }

  // `joining`: the link of the node that a welcome is for.
  void carry_out(const MemberEffects& effects, const std::shared_ptr<Link>& joining = nullptr) {
    for (const MemberEffect& e : effects) {
      if (const auto* welcome = std::get_if<member_effect::Welcome>(&e)) {
        node_links_[welcome->node] = joining;
        answer(joining, [&](schemas::Message::Builder m) {
          auto w = m.initWelcome();
          w.setNode(welcome->node.value);
          w.setEpoch(parts_.epoch);
        });
      } else if (const auto* offer = std::get_if<member_effect::Offer>(&e)) {
        const NodeInfo& info = members_.find(offer->node)->info;
        send(jobs_.at(offer->job).supervisor,
             NodeOffered{offer->node, member_name(offer->node, info), info.slots, info.cores, label(info, "rack")});
      } else if (const auto* lost = std::get_if<member_effect::Lost>(&e)) {
        send(jobs_.at(lost->job).supervisor, NodeGone{lost->node, lost->why});
      }
    }
  }

  void to_node(const ToNode& m) {
    const auto link = node_links_.find(m.node);
    if (link == node_links_.end()) return;  // the job hears of its end
    if (const Result<void> sent = push(link->second, std::move(*m.frame)); !sent) {
      link->second->close("cannot send to the node: " + sent.error().message);
    }
  }

  static Result<void> push(const std::shared_ptr<Link>& link, transport::Frame frame) {
    return link->send(std::move(frame));
  }

  void on_down(const LinkDown& m) {
    if (links_.erase(m.link.get()) == 0) return;
    if (const std::optional<NodeId> node = node_of(m.link)) {
      parts_.logger.warning("a node is gone", {{"node", node->value}, {"why", m.why.message}});
      node_links_.erase(*node);
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
      case schemas::Message::CANCEL:
        return for_job(link, {m.getCancel().getJob()}, [this](Job& job) { cancel(job, {"it was cancelled", 130}); });
      case schemas::Message::PAUSE_JOB:
        return for_job(link, {m.getPauseJob()}, [this](Job& job) { tell(job, PauseJob{}); });
      case schemas::Message::RESUME_JOB:
        return for_job(link, {m.getResumeJob()}, [this](Job& job) { tell(job, ResumeJob{}); });
      case schemas::Message::STATUS:
        return answer(link, [&](schemas::Message::Builder b) { b.setStatusReply(status()); });
      case schemas::Message::INJECT: return inject(link, m.getInject());
      case schemas::Message::DRAIN: return drain(link, {m.getDrain()});
      case schemas::Message::EVICT: return evict(link, {m.getEvict()});
      case schemas::Message::SHUTDOWN: return stop("a client asked for the end of the cluster");
      default: return link->close("a message that no client sends");
    }
  }

  template <class Fill>
  void answer(const std::shared_ptr<Link>& link, Fill fill) {
    if (const Result<void> sent = push(link, make_frame(fill)); !sent) link->close(sent.error().message);
  }

  void refuse(const std::shared_ptr<Link>& link, const Error& why) {
    if (!link) return;
    answer(link, [&](schemas::Message::Builder m) {
      auto refused = m.initRefused();
      refused.setAction(static_cast<std::uint8_t>(why.action));
      refused.setMessage(why.message);
    });
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
    Submission s{
        in.getJobFile().cStr(),       in.getSource().cStr(),          in.getRanks(),   in.getNodes(), in.getThreads(),
        in.getSaveDirectory().cStr(), in.getResumeDirectory().cStr(), in.getUcxOnly(), in.getFollow()};
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
    job.view.name = m.outcome->config.name;
    job.view.phase = "waiting for slots";
    if (job.follower) {
      answer(job.follower, [&](schemas::Message::Builder b) { b.initAccepted().setJob(m.job.value); });
    }
    job.supervisor = spawn_job_supervisor(system(), {m.job, parts_.epoch, *m.outcome, parts_.version, parts_.clock,
                                                     parts_.logger.with_component("job"), this});
    carry_out(members_.step(member_event::JobWants{m.job}));
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
    answer(link, [&](schemas::Message::Builder m) { m.initAccepted().setJob(job->first.value); });
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
    const auto at = node ? node_links_.find(*node) : node_links_.end();
    if (at == node_links_.end()) {
      return refuse(link, {ErrorAction::refuse, fmt::format("there is no {} {}; `kintsugi status` shows what runs",
                                                            target.isNode() ? "node" : "rank",
                                                            target.isNode() ? target.getNode() : target.getRank())});
    }
    parts_.logger.warning("a fault is injected", {{"node", node->value}, {"fault", std::int64_t(in.getFault())}});
    static_cast<void>(push(at->second, make_frame([&](schemas::Message::Builder m) { m.setInject(in); })));
    answer(link, [&](schemas::Message::Builder m) { m.initAccepted(); });
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
    answer(link, [](schemas::Message::Builder m) { m.initAccepted(); });
  }

  void let_go(NodeId node) {
    if (const auto at = node_links_.find(node); at != node_links_.end()) {
      static_cast<void>(
          push(at->second, make_frame([](schemas::Message::Builder m) { m.setLeave("it was drained"); })));
    }
  }

  void evict(const std::shared_ptr<Link>& link, RankId rank) {
    for (auto& [id, job] : jobs_) {
      const auto& ranks = job.view.ranks;
      if (std::none_of(ranks.begin(), ranks.end(), [&](const JobView::Rank& r) { return r.rank == rank; })) continue;
      send(job.supervisor, EvictRankOfJob{rank});
      return answer(link, [&](schemas::Message::Builder m) { m.initAccepted().setJob(id.value); });
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

  void to_follower(const ToFollower& m) {
    const auto job = jobs_.find(m.job);
    if (job == jobs_.end() || !job->second.follower || !job->second.follows) return;
    const std::shared_ptr<Link>& link = job->second.follower;
    const Result<void> sent = push(link, std::move(*m.frame));
    // A client that does not keep up loses its link rather than the one frame that may be the end.
    if (!sent) link->close("the client is too slow: " + sent.error().message);
  }

  void on_job_ended(const JobEnded& m) {
    parts_.logger.info("a job ended", {{"job", m.job.value}, {"exit_code", m.exit_code}, {"why", m.message}});
    jobs_.erase(m.job);
    carry_out(members_.step(member_event::JobEnded{m.job}));
    if (stopping_) end();
  }

  std::string status() const {
    std::vector<JobView> views;
    for (const auto& [id, job] : jobs_) views.push_back(job.view);
    std::map<NodeId, std::string> addresses;
    for (const auto& [node, link] : node_links_) addresses[node] = link->peer().address;
    return status_json(members_, addresses, views, parts_.epoch, parts_.version);
  }

  void stop(const std::string& why) {
    if (stopping_) return;
    stopping_ = true;
    for (auto& [id, job] : jobs_) cancel(job, {why, 130});
    if (jobs_.empty()) end();
  }

  void end() {
    for (const auto& [node, link] : node_links_) {
      static_cast<void>(push(link, make_frame([](schemas::Message::Builder m) { m.setLeave("the cluster ends"); })));
    }
    quit();
  }

  SupervisorParts parts_;
  std::map<const Link*, std::shared_ptr<Link>> links_;  // all that are up, of nodes and clients
  Membership members_;
  std::map<NodeId, std::shared_ptr<Link>> node_links_;  // of every member
  std::map<JobId, Job> jobs_;
  std::uint32_t next_job_ = 1;  // never reused; 0 means "the only one"
  bool stopping_ = false;
};

}  // namespace

// Declared in the order of need: links go first, then the actors they call.
struct Cluster::Impl {
  SteadyClock clock;
  caf::actor_system_config config = make_system_config();
  caf::actor_system system{config};
  Event done;
  caf::actor supervisor;
  std::unique_ptr<transport::LinkService> links;
  transport::ListenAddress address;

  ~Impl() {
    links.reset();
    if (supervisor) caf::anon_send_exit(supervisor, caf::exit_reason::user_shutdown);
    supervisor = nullptr;
  }
};

Cluster::Cluster(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cluster::~Cluster() = default;

Result<std::unique_ptr<Cluster>> Cluster::start(ClusterOptions options) {
  auto impl = std::make_unique<Impl>();
  auto parts = std::make_shared<SupervisorParts>(
      SupervisorParts{options.epoch, options.embedded, options.version, options.logger, &impl->clock, impl->done});
  impl->supervisor = impl->system.spawn<ClusterSupervisor>(parts);
  impl->links = std::make_unique<transport::LinkService>(options.logger.with_component("link"));
  const caf::actor supervisor = impl->supervisor;
  const auto on_link = [supervisor](std::shared_ptr<Link> link) {
    caf::anon_send(supervisor, LinkUp{std::move(link)});
    return callbacks_to(supervisor);
  };
  KINTSUGI_TRY_ASSIGN(impl->address, impl->links->listen({options.address, options.port, std::move(options.identity),
                                                          Incarnation{static_cast<std::uint64_t>(wall_clock_ns())},
                                                          link_options(), on_link}));
  return std::unique_ptr<Cluster>(new Cluster(std::move(impl)));
}

const transport::ListenAddress& Cluster::address() const {
  return impl_->address;
}
void Cluster::stop(const std::string& why) {
  caf::anon_send(impl_->supervisor, StopCluster{why});
}
const Event& Cluster::done() const {
  return impl_->done;
}

}  // namespace kintsugi::actors
