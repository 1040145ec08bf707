// ClusterSupervisor: what clients ask for, and the jobs that come of it.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <exception>

#include "actors/cluster_body.hpp"
#include "actors/cluster_status.hpp"
#include "actors/injection.hpp"

namespace kintsugi::actors {

namespace {

// Whoever submitted it is told; this is a task, which nobody restarts.
Result<AdmittedJob> admit_whatever_comes(const Submission& submission) {
  try {
    return admit(submission);
  } catch (const std::exception& e) {
    return Error{ErrorAction::refuse, std::string("the job could not be checked: ") + e.what()};
  }
}

}  // namespace

void ClusterSupervisor::on_client(const std::shared_ptr<Link>& link, schemas::Message::Reader m) {
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

void ClusterSupervisor::answer(const std::shared_ptr<Link>& link, transport::Frame frame) {
  if (const Result<void> sent = link->send(std::move(frame)); !sent) link->close(sent.error().message);
}

void ClusterSupervisor::refuse(const std::shared_ptr<Link>& link, const Error& why) {
  if (link) answer(link, refusal(why));
}

void ClusterSupervisor::submit(const std::shared_ptr<Link>& link, schemas::Submit::Reader in) {
  if (stopping_) return refuse(link, {ErrorAction::refuse, "the cluster is ending; submit to another one"});
  if (!jobs_.empty()) {
    const auto& [id, job] = *jobs_.begin();
    return refuse(link, {ErrorAction::refuse,
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
  system().spawn<caf::detached>([owner = self(), id, s = std::move(s)](caf::event_based_actor* reader) {
    reader->send(owner, AdmissionDone{id, admit_whatever_comes(s)});
  });
}

void ClusterSupervisor::on_admission(const AdmissionDone& m) {
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
  job.admitted = *m.outcome;
  accept(m.job);
}

// Whoever hears that it is accepted may rely on it.
void ClusterSupervisor::accept(JobId id) {
  promise(submitted_entry(id, *jobs_.at(id).admitted),
          [this, id] { on_submitted(id, *std::exchange(jobs_.at(id).admitted, std::nullopt)); });
}

void ClusterSupervisor::on_submitted(JobId id, const AdmittedJob& admitted) {
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

void ClusterSupervisor::start_job(JobId id, const AdmittedJob& admitted, std::optional<Adoption> adoption,
                                  std::optional<RestartJob> before) {
  Job& job = jobs_[id];
  job.view.job = id;
  job.view.name = admitted.config.name;
  job.supervisor = spawn_job_supervisor(place("job_supervisor"),
                                        {id, epoch(), admitted, std::move(adoption), std::move(before), parts_.version,
                                         parts_.clock, parts_.logger.with_component("job"), journal_});
  carry_out(members_.step(member_event::JobWants{id}));
}

// The newest follower is the one that is told.
void ClusterSupervisor::follow(const std::shared_ptr<Link>& link, JobId wanted) {
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

void ClusterSupervisor::cancel(Job& job, CancelJob why) {
  if (job.supervisor)
    send(job.supervisor, why);
  else
    job.cancelled = std::move(why);
}

void ClusterSupervisor::inject(const std::shared_ptr<Link>& link, schemas::Inject::Reader in) {
  const auto target = in.getTarget();
  if (target.isActor()) return crash(link, target.getActor().cStr());
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

void ClusterSupervisor::crash(const std::shared_ptr<Link>& link, const std::string& actor) {
  const std::vector<ClusterTree::Row> rows = tree_.rows(*parts_.tree);
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.actor.name == actor; });
  if (found == rows.end()) return refuse(link, {ErrorAction::refuse, no_such_actor(actor, rows)});
  parts_.logger.warning("a fault is injected", {{"actor", actor}});
  answer(link, acceptance({}));
  if (!found->node) {
    static_cast<void>(parts_.tree->crash(actor));
  } else if (Link* const at = node_links_.find(*found->node)) {
    static_cast<void>(at->send(make_frame([&](schemas::Message::Builder m) {
      auto inject = m.initInject();
      inject.setFault(schemas::Inject::Fault::CRASH);
      inject.getTarget().setActor(actor);
    })));
  }
}

// Of the job first, if one has the node; then the node leaves.
void ClusterSupervisor::drain(const std::shared_ptr<Link>& link, NodeId node) {
  const Member* member = members_.find(node);
  if (member == nullptr) {
    return refuse(
        link, {ErrorAction::refuse, fmt::format("there is no node {}; `kintsugi status` shows what runs", node.value)});
  }
  if (member->lease)
    send(jobs_.at(*member->lease).supervisor, DrainNodeOfJob{node});
  else
    let_go(node);
  answer(link, acceptance({}));
}

void ClusterSupervisor::let_go(NodeId node) {
  if (Link* const link = node_links_.find(node)) {
    static_cast<void>(link->send(make_frame([](schemas::Message::Builder m) { m.setLeave("it was drained"); })));
  }
}

void ClusterSupervisor::evict(const std::shared_ptr<Link>& link, RankId rank) {
  for (auto& [id, job] : jobs_) {
    const auto& ranks = job.view.ranks;
    if (std::none_of(ranks.begin(), ranks.end(), [&](const JobView::Rank& r) { return r.rank == rank; })) continue;
    send(job.supervisor, EvictRankOfJob{rank});
    return answer(link, acceptance(id));
  }
  refuse(link,
         {ErrorAction::refuse, fmt::format("there is no rank {}; `kintsugi status` shows what runs", rank.value)});
}

std::optional<NodeId> ClusterSupervisor::node_of_rank(RankId rank) const {
  for (const auto& [id, job] : jobs_) {
    for (const JobView::Rank& r : job.view.ranks) {
      if (r.rank == rank) return r.node;
    }
  }
  return std::nullopt;
}

void ClusterSupervisor::to_follower(JobId id, transport::Frame frame) {
  const auto job = jobs_.find(id);
  if (job == jobs_.end() || !job->second.follower || !job->second.follows) return;
  const std::shared_ptr<Link>& link = job->second.follower;
  const Result<void> sent = link->send(std::move(frame));
  // A client that does not keep up loses its link rather than the one frame that may be the end.
  if (!sent) link->close("the client is too slow: " + sent.error().message);
}

void ClusterSupervisor::on_job_ended(const JobEnded& m) {
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

std::string ClusterSupervisor::status() const {
  std::vector<JobView> views;
  for (const auto& [id, job] : jobs_) views.push_back(job.view);
  return status_json(members_, node_links_.addresses(), mirrors_.keepers(), views, tree_.rows(*parts_.tree), epoch(),
                     parts_.version);
}

void ClusterSupervisor::stop(const std::string& why) {
  if (stopping_) return;
  stopping_ = true;
  for (auto& [id, job] : jobs_) cancel(job, {why, 130});
  if (jobs_.empty()) end();
}

void ClusterSupervisor::end() {
  for (const auto& [node, link] : node_links_) {
    static_cast<void>(link->send(make_frame([](schemas::Message::Builder m) { m.setLeave("the cluster ends"); })));
    write_down(journaled::NodeLeft{node, "the cluster ends"});
  }
  quit();
}

}  // namespace kintsugi::actors
