#include "sim/protocol/supervisor.hpp"

#include <algorithm>
#include <utility>

namespace kintsugi::sim::protocol {

namespace {
// A write into the file, and until it is on the disk.
constexpr Duration kWrite{30'000}, kSync{800'000};

Adoption adoption_of(const RestartJob& job, const std::map<NodeId, journaled::NodeJoined>& nodes) {
  Adoption adoption;
  adoption.first = job.submitted.first_step;
  if (job.generation) {
    adoption.promised = job.generation->generation;
    adoption.next_rank = job.generation->next_rank.value;
    adoption.incidents = job.generation->incidents;
    adoption.paused = job.generation->paused;
  }
  if (job.record) adoption.record = *decode_record(job.record->message);
  for (const auto& [node, joined] : nodes) adoption.nodes[node] = to_string(node) + " (" + joined.host + ")";
  return adoption;
}

}  // namespace

Generation Disk::promised() const {
  for (auto e = entries.rbegin(); e != entries.rend(); ++e) {
    if (const auto* made = std::get_if<journaled::GenerationMade>(&e->what)) return made->generation;
  }
  return {};
}

Supervisor::Supervisor(const Context& context, Pid pid, Incarnation incarnation, Disk& disk)
    : context_(context), pid_(pid), incarnation_(incarnation), disk_(disk) {}

void Supervisor::begin() {
  const RestartState found = restart_state(disk_.entries);
  epoch_ = found.epoch + 1;
  disk_.entries.push_back({0, journaled::Started{.epoch = epoch_, .cluster_id = 1}});
  members_ = Membership(found.next_node);
  absent_ = found.nodes;
  const bool was_here = std::any_of(disk_.entries.begin(), disk_.entries.end(), [](const JournalEntry& e) {
    return std::holds_alternative<journaled::Submitted>(e.what);
  });
  if (!absent_.empty()) {
    context_.post(pid_, seconds(context_.job.config.resilience.orphan_limit), kTimer, [this] { forget_absent(); });
  }
  if (const auto job = found.jobs.find(kJob); job != found.jobs.end()) {
    return start_job(adoption_of(job->second, found.nodes));
  }
  if (was_here) {
    for (const JournalEntry& e : disk_.entries) {
      if (const auto* ended = std::get_if<journaled::Ended>(&e.what)) outcome_ = {ended->exit_code, ended->message};
    }
    return;
  }
  promise(journaled::Submitted{.job = kJob, .lineage = kLineage}, [this] { start_job(std::nullopt); });
}

// --- the journal ------------------------------------------------------------------------------------------------------
void Supervisor::append(Entry what, std::function<void()> then) {
  journal_free_ = std::max(journal_free_, context_.processes.now()) + kWrite;
  const bool is_promise = then != nullptr;
  if (is_promise) waiting_.push_back(std::move(then));
  const Instant written = journal_free_;
  if (is_promise) journal_free_ = journal_free_ + kSync * context_.processes.slowness(pid_);
  context_.processes.post(pid_, written, kJournal, what.index(),
                          [this, entry = JournalEntry{0, std::move(what)}] { disk_.entries.push_back(entry); });
  if (!is_promise) return;
  context_.processes.post(pid_, journal_free_, kJournal, 99, [this] {
    const std::function<void()> kept = std::move(waiting_.front());
    waiting_.pop_front();
    kept();
  });
}

void Supervisor::in_turn(std::function<void()> then) {
  if (waiting_.empty()) return then();
  // After the last promise so far.
  waiting_.back() = [last = std::move(waiting_.back()), then = std::move(then)] {
    last();
    then();
  };
}

journaled::GenerationMade Supervisor::generation_made() const {
  return {
      kJob, kLineage, machine_->generation(), machine_->next_rank(), "", machine_->incidents(), machine_->is_pausing()};
}

// --- the cluster ------------------------------------------------------------------------------------------------------
std::optional<NodeId> Supervisor::node_of(LinkId link) const {
  for (const auto& [node, l] : links_) {
    if (l == link) return node;
  }
  return std::nullopt;
}

void Supervisor::on_message(LinkId link, const Sent& sent) {
  const std::optional<NodeId> node = node_of(link);
  if (!node) {
    if (const auto* hello = std::get_if<say::NodeHello>(&sent->what)) join(link, *hello);
    return;
  }
  if (machine_ && machine_->phase() != JobPhase::ended) return on_job_message(*node, sent);
  if (std::holds_alternative<say::JobState>(sent->what)) to_node(*node, message(say::Stop{"it has ended"}));
}

void Supervisor::join(LinkId link, const say::NodeHello& hello) {
  NodeInfo info;
  info.host = hello.host;
  info.slots = hello.slots;
  info.incarnation = hello.incarnation;
  if (!hello.rack.empty()) info.labels.push_back("rack=" + hello.rack);
  const auto known = absent_.find(hello.former);
  const bool is_former = known != absent_.end() && known->second.incarnation == hello.incarnation;
  if (is_former) absent_.erase(known);
  std::optional<NodeId> former;
  if (is_former) former = hello.former;
  carry_out(members_.step(member_event::Joined{std::move(info), former}), link, is_former && hello.runs_the_job);
}

void Supervisor::carry_out(const MemberEffects& effects, std::optional<LinkId> joining, bool runs) {
  for (const MemberEffect& e : effects) {
    if (const auto* welcome = std::get_if<member_effect::Welcome>(&e)) {
      links_[welcome->node] = *joining;
      const NodeInfo& info = members_.find(welcome->node)->info;
      write_down(journaled::NodeJoined{
          .node = welcome->node, .host = info.host, .incarnation = info.incarnation, .slots = info.slots});
      to_node(welcome->node, message(say::Welcome{welcome->node, epoch_, incarnation_}));
    } else if (const auto* offer = std::get_if<member_effect::Offer>(&e)) {
      const NodeInfo& info = members_.find(offer->node)->info;
      offered_[offer->node] = true;
      feed(job_event::NodeReady{offer->node, member_name(offer->node, info), info.slots, label(info, "rack"), runs});
    } else if (const auto* lost = std::get_if<member_effect::Lost>(&e)) {
      offered_.erase(lost->node);
      feed(job_event::NodeLost{lost->node, lost->why});
    }
  }
}

void Supervisor::on_link_down(LinkId link, const std::string& why) {
  const std::optional<NodeId> node = node_of(link);
  if (!node) return;
  links_.erase(*node);
  context_.node_is_given_up(link);
  write_down(journaled::NodeLeft{*node, why});
  carry_out(members_.step(member_event::Left{*node, why}));
}

void Supervisor::forget_absent() {
  for (const auto& [node, joined] : absent_) write_down(journaled::NodeLeft{node, "it did not come back"});
  absent_.clear();
}

void Supervisor::to_node(NodeId node, const Sent& sent) {
  const auto at = links_.find(node);
  if (at != links_.end()) context_.links.send(at->second, pid_, sent->what.index(), sent);
}

void Supervisor::to_nodes(const Sent& sent) {
  for (const auto& [node, mark] : offered_) to_node(node, sent);
}

void Supervisor::drain(NodeId node) {
  const Member* const member = members_.find(node);
  if (member == nullptr) return;
  if (member->lease)
    feed(job_event::DrainNode{node});
  else
    to_node(node, message(say::Leave{"it was drained"}));
}

void Supervisor::evict(RankId rank) {
  if (machine_ && machine_->plan() && machine_->plan()->has(rank)) feed(job_event::EvictRank{rank});
}

void Supervisor::pause() {
  if (machine_) feed(job_event::PauseJob{});
}

void Supervisor::resume() {
  if (machine_) feed(job_event::ResumeJob{});
}

}  // namespace kintsugi::sim::protocol
