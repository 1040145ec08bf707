// The body of the cluster supervisor, in two files: cluster_supervisor.cpp has its nodes and jobs, cluster_clients.cpp what
// clients ask for.
#pragma once

#include <fmt/format.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "actors/cluster_frames.hpp"
#include "actors/cluster_supervisor.hpp"
#include "actors/cluster_tree.hpp"
#include "actors/job_supervisor.hpp"
#include "actors/journal_writer.hpp"
#include "actors/mirrors.hpp"
#include "actors/node_links.hpp"
#include "actors/restart.hpp"
#include "actors/system.hpp"

namespace kintsugi::actors {

struct AdmissionDone {
  JobId job;
  Result<AdmittedJob> outcome;
};
struct ForgetAbsent {};

// Outlives an incarnation. What a root does wrong with this is cured by a process that knows only the journal.
struct HeldCluster {
  using Link = transport::Link;
  struct Job {
    caf::actor supervisor;           // none while it is being admitted
    std::shared_ptr<Link> follower;  // may be none
    bool follows = false;            // the follower is told of progress and of the end
    JobView view;
    std::optional<CancelJob> cancelled;   // while it was being admitted
    std::optional<AdmittedJob> admitted;  // while that is being written down
  };

  HeldCluster(ClusterParts its_parts, Inheritance inherited)
      : parts(std::move(its_parts)),
        members(inherited.state.next_node),
        absent(inherited.state.nodes),
        next_job(inherited.state.next_job.value),
        found(std::make_unique<Inheritance>(std::move(inherited))),
        is_mirrored(parts.journal && !parts.embedded),
        mirrors(cluster_id(), epoch(), [this](NodeId node, transport::Frame f) { to_node(node, std::move(f)); }) {}
  HeldCluster(const HeldCluster&) = delete;
  HeldCluster& operator=(const HeldCluster&) = delete;

  std::uint32_t epoch() const { return parts.journal ? parts.journal->epoch() : 1; }
  std::uint64_t cluster_id() const { return parts.journal ? parts.journal->cluster_id() : 0; }
  void to_node(NodeId node, transport::Frame frame) const {
    Link* const link = node_links.find(node);
    if (link == nullptr) return;  // the job hears of its end
    if (const Result<void> sent = link->send(std::move(frame)); !sent) {
      link->close("cannot send to the node: " + sent.error().message);
    }
  }

  ClusterParts parts;
  caf::actor journal;
  std::map<const Link*, std::shared_ptr<Link>> links;  // all that are up, of nodes and clients
  Membership members;
  NodeLinks node_links;                            // of every member
  std::map<NodeId, journaled::NodeJoined> absent;  // a former supervisor's, not back yet
  std::map<JobId, ControlMessage> ended;           // the newest ends
  std::map<JobId, Job> jobs;
  std::uint32_t next_job;  // never reused; 0 means "the only one"
  ClusterTree tree;
  bool stopping = false;
  std::unique_ptr<Inheritance> found;  // until it is taken over
  const bool is_mirrored;              // a cluster that ends with its supervisor has nobody to take over for
  Mirrors mirrors;
};

class ClusterSupervisor final : public Body {
 public:
  ClusterSupervisor(Life life, HeldCluster& held);

  caf::behavior make_behavior() override;
  void on_end() override;

 private:
  using Link = transport::Link;
  using Job = HeldCluster::Job;
  static constexpr std::size_t kEndsKept = 4;  // with their reports

  // --- the journal --------------------------------------------------------------------------------------------------
  std::uint32_t epoch() const { return held_.epoch(); }
  void write_down(decltype(JournalEntry::what) what) { send(journal_, WriteDown{entry_now(std::move(what))}); }
  void promise(decltype(JournalEntry::what) what, std::function<void()> then);
  void fail(const Error& why);
  void take_over_jobs();
  void promise_again();
  void forget_absent();
  void on_frame(const LinkFrame& m);

  // --- nodes --------------------------------------------------------------------------------------------------------
  void on_node(const std::shared_ptr<Link>& link, const ControlMessage& message);
  void join(const std::shared_ptr<Link>& link, schemas::NodeHello::Reader hello);
  void carry_out(const MemberEffects& effects, const std::shared_ptr<Link>& joining = nullptr,
                 const std::set<JobId>& runs = {});
  bool may_join(const std::shared_ptr<Link>& link, const Arrival& arrival);
  void check_for_stall();
  void on_down(const LinkDown& m);

  // --- clients ------------------------------------------------------------------------------------------------------
  void on_client(const std::shared_ptr<Link>& link, schemas::Message::Reader m);
  void answer(const std::shared_ptr<Link>& link, transport::Frame frame);
  void refuse(const std::shared_ptr<Link>& link, const Error& why);
  void submit(const std::shared_ptr<Link>& link, schemas::Submit::Reader in);
  void on_admission(const AdmissionDone& m);
  void accept(JobId id);
  void on_submitted(JobId id, const AdmittedJob& admitted);
  void start_job(JobId id, const AdmittedJob& admitted, std::optional<Adoption> adoption = std::nullopt,
                 std::optional<RestartJob> before = std::nullopt);
  void follow(const std::shared_ptr<Link>& link, JobId wanted);
  void cancel(Job& job, CancelJob why);
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
  void inject(const std::shared_ptr<Link>& link, schemas::Inject::Reader in);
  void crash(const std::shared_ptr<Link>& link, const std::string& actor);
  void drain(const std::shared_ptr<Link>& link, NodeId node);
  void let_go(NodeId node);
  void evict(const std::shared_ptr<Link>& link, RankId rank);
  std::optional<NodeId> node_of_rank(RankId rank) const;
  void to_follower(JobId id, transport::Frame frame);
  void on_job_ended(const JobEnded& m);
  std::string status() const;
  void stop(const std::string& why);
  void end();

  // All but the promises outlive this body.
  HeldCluster& held_;
  ClusterParts& parts_;
  caf::actor& journal_;
  std::map<const Link*, std::shared_ptr<Link>>& links_;
  Membership& members_;
  NodeLinks& node_links_;
  std::map<NodeId, journaled::NodeJoined>& absent_;
  std::map<JobId, ControlMessage>& ended_;
  std::map<JobId, Job>& jobs_;
  std::uint32_t& next_job_;
  ClusterTree& tree_;
  bool& stopping_;
  std::unique_ptr<Inheritance>& found_;
  Mirrors& mirrors_;
  Promises promises_;
};

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::AdmissionDone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::ForgetAbsent)
