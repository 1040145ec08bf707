#include "actors/cluster_supervisor.hpp"

#include <algorithm>

#include "actors/cluster_body.hpp"

namespace kintsugi::actors {

ClusterSupervisor::ClusterSupervisor(Life life, HeldCluster& held)
    : Body(std::move(life)),
      held_(held),
      parts_(held.parts),
      journal_(held.journal),
      links_(held.links),
      members_(held.members),
      node_links_(held.node_links),
      absent_(held.absent),
      ended_(held.ended),
      jobs_(held.jobs),
      next_job_(held.next_job),
      tree_(held.tree),
      stopping_(held.stopping),
      found_(held.found),
      mirrors_(held.mirrors),
      promises_(this->life().incarnation) {}

caf::behavior ClusterSupervisor::make_behavior() {
  if (!journal_) {
    journal_ = spawn_journal_writer(place("journal_writer"), parts_.journal, held_.is_mirrored);
    mirrors_.begin(journal_);
  }
  if (found_)
    take_over_jobs();
  else
    promise_again();
  return {
      [this](const LinkUp& m) { links_[m.link.get()] = m.link; },
      [this](const LinkFrame& m) { on_frame(m); },
      [](const LinkPing& m) { m.link->pong(m.id); },
      [this](const LinkDown& m) { on_down(m); },
      [this](const AdmissionDone& m) { on_admission(m); },
      [this](const ToNode& m) { held_.to_node(m.node, std::move(*m.frame)); },
      [this](const ToFollower& m) { to_follower(m.job, std::move(*m.frame)); },
      [this](const JobView& m) {
        if (const auto job = jobs_.find(m.job); job != jobs_.end()) job->second.view = m;
      },
      [this](const JobEnded& m) { on_job_ended(m); },
      [this](const NodeDrained& m) { let_go(m.node); },
      [this](const StopCluster& m) { stop(m.why); },
      [this](const PromiseKept& m) { promises_.kept(m); },
      [this](const JournalFailed& m) { fail(m.why); },
      [this](const Journaled& m) { mirrors_.on(m); },
      [this](const JournalCopied& m) { mirrors_.on(m); },
      [this](const ForgetAbsent&) { forget_absent(); },
  };
}

void ClusterSupervisor::on_end() {
  for (const auto& [key, link] : links_) link->close("the cluster ends");
  links_.clear();
  node_links_.clear();
  for (const auto& [id, job] : jobs_) {
    if (job.supervisor) end_child(job.supervisor);
  }
  jobs_.clear();
  send(journal_, JournalEnd{});
  journal_ = nullptr;
  mirrors_.end();
  parts_.done.signal();
}

void ClusterSupervisor::promise(decltype(JournalEntry::what) what, std::function<void()> then) {
  promises_.make(journal_, self(), std::move(what), std::move(then));
}

// Without a journal it could promise nothing. Its nodes go on, and wait for the next supervisor.
void ClusterSupervisor::fail(const Error& why) {
  parts_.done.fail(why);
  quit();
}

// Jobs that the former supervisor had; who worked for it comes by itself.
void ClusterSupervisor::take_over_jobs() {
  Duration longest = seconds(ResilienceConfig{}.orphan_limit);
  for (const auto& [id, admitted] : found_->jobs) {
    jobs_[id].follows = true;
    start_job(id, admitted, found_->adoptions.at(id), found_->state.jobs.at(id));
    longest = std::max(longest, seconds(admitted.config.resilience.orphan_limit));
  }
  for (const journaled::Ended& end : found_->state.ended)
    ended_.emplace(end.job, *ControlMessage::parse(past_end(end)));
  found_.reset();
  if (!absent_.empty()) send_self(longest, ForgetAbsent{});
}

// What waited for a promise went with the body that waited.
void ClusterSupervisor::promise_again() {
  for (const auto& [id, job] : jobs_) {
    if (job.admitted) accept(id);
  }
}

void ClusterSupervisor::forget_absent() {
  for (const auto& [node, joined] : absent_) write_down(journaled::NodeLeft{node, "it did not come back"});
  absent_.clear();
}

void ClusterSupervisor::on_frame(const LinkFrame& m) {
  check_for_stall();
  if (!links_.contains(m.link.get())) return;  // its end overtook it
  const Result<void> read = guarded([&] {
    if (m.link->peer().hello.role == transport::LinkRole::client)
      on_client(m.link, m.message.get());
    else
      on_node(m.link, m.message);
  });
  if (!read) m.link->close(read.error().message);
}

void ClusterSupervisor::on_node(const std::shared_ptr<Link>& link, const ControlMessage& message) {
  const auto m = message.get();
  const std::optional<NodeId> node = node_links_.node_of(link);
  if (!node) {
    if (m.which() != schemas::Message::NODE_HELLO) return link->close("a node says hello first");
    return join(link, m.getNodeHello());
  }
  if (m.which() == schemas::Message::JOURNAL_KEPT) return mirrors_.kept(*node, m.getJournalKept());
  if (m.which() == schemas::Message::PROCESS_ACTORS) return tree_.update(*node, m.getProcessActors());
  const std::optional<JobId> job = job_of(m);
  if (!job) return link->close("a message that no node sends");
  if (const auto to = jobs_.find(*job); to != jobs_.end() && to->second.supervisor) {
    send(to->second.supervisor, NodeFrame{*node, message});
  } else if (m.which() == schemas::Message::JOB_STATE) {
    answer(link, stop_frame(*job, "it has ended"));
  }
}

void ClusterSupervisor::join(const std::shared_ptr<Link>& link, schemas::NodeHello::Reader hello) {
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
bool ClusterSupervisor::may_join(const std::shared_ptr<Link>& link, const Arrival& arrival) {
  if (!parts_.journal) return true;
  const Tenure self{epoch(), parts_.journal->incarnation()};
  const std::uint32_t served = arrival.claim.served.epoch;
  switch (judge(arrival.claim, held_.cluster_id(), self, parts_.journal->found().tenures)) {
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
void ClusterSupervisor::carry_out(const MemberEffects& effects, const std::shared_ptr<Link>& joining,
                                  const std::set<JobId>& runs) {
  for (const MemberEffect& e : effects) {
    if (const auto* welcome = std::get_if<member_effect::Welcome>(&e)) {
      node_links_.add(welcome->node, joining);
      write_down(joined_entry(welcome->node, members_.find(welcome->node)->info));
      answer(joining, make_frame([&](schemas::Message::Builder m) {
               auto w = m.initWelcome();
               w.setNode(welcome->node.value);
               w.setEpoch(epoch());
               w.setClusterId(held_.cluster_id());
             }));
      if (held_.is_mirrored) mirrors_.came(welcome->node, label(members_.find(welcome->node)->info, "rack"));
    } else if (const auto* offer = std::get_if<member_effect::Offer>(&e)) {
      const NodeInfo& info = members_.find(offer->node)->info;
      send(jobs_.at(offer->job).supervisor, NodeOffered{offer->node, member_name(offer->node, info), info.slots,
                                                        info.cores, label(info, "rack"), runs.contains(offer->job)});
    } else if (const auto* lost = std::get_if<member_effect::Lost>(&e)) {
      send(jobs_.at(lost->job).supervisor, NodeGone{lost->node, lost->why});
    }
  }
}

void ClusterSupervisor::check_for_stall() {
  if (parts_.stall_guard != nullptr) parts_.stall_guard->check();
}

void ClusterSupervisor::on_down(const LinkDown& m) {
  check_for_stall();
  if (links_.erase(m.link.get()) == 0) return;
  if (const std::optional<NodeId> node = node_links_.node_of(m.link)) {
    parts_.logger.warning("a node is gone", {{"node", node->value}, {"why", m.why.message}});
    node_links_.remove(*node);
    tree_.forget(*node);
    if (held_.is_mirrored) mirrors_.went(*node);
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

Result<caf::actor> spawn_cluster_supervisor(caf::actor_system& system, ClusterParts parts) {
  KINTSUGI_TRY_ASSIGN(Inheritance found, inherit(parts.journal.get()));
  Place place{&system, parts.tree, "cluster_supervisor", nullptr, 0, parts.on_spent};
  if (!place.on_spent) {
    place.on_spent = [done = parts.done](const std::string& why) mutable {
      done.fail({ErrorAction::restart_process, why});
    };
  }
  auto held = std::make_shared<HeldCluster>(std::move(parts), std::move(found));
  return spawn_supervised(std::move(place), bodies_of<ClusterSupervisor>(std::move(held)));
}

}  // namespace kintsugi::actors
