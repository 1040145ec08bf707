// JobMachine: ranks that leave by plan (drain, evict). Two planned changes, each at a vote, so that nothing is lost and
// nobody waits: in the first generation they are members without work, and what they held is copied from them; in the
// second they are no members, and their processes end.
#include <algorithm>
#include <utility>

#include "base/probe.hpp"
#include "engine/control/job_machine.hpp"

namespace kintsugi {

using namespace job_event;  // NOLINT(google-build-using-namespace): the machine's own alphabet
namespace effect = job_effect;

void JobMachine::on(const DrainNode& e) {
  if (phase_ == JobPhase::stopping || !ranks_.has_node(e.node)) return drop();
  ranks_.close_node(e.node);
  draining_.insert(e.node);
  for (const RankId rank : RankSet(ranks_.ranks_on(e.node))) {
    if (ranks_.state(rank) == RankPhase::starting) refuse(rank, ranks_.name_of(rank) + " was drained before it began");
    if (ranks_.state(rank) == RankPhase::up) leaving_.insert(rank);
    if (leaving_.contains(rank) && is_left_out(e.node)) refuse(rank, ranks_.name_of(rank) + " had no work");
  }
  free_drained();
  if (phase_ == JobPhase::starting) return lost_while_starting(ranks_.name_of(e.node) + " is drained");
  refill();
}

void JobMachine::on(const EvictRank& e) {
  const bool is_here = ranks_.knows(e.rank) && ranks_.state(e.rank) == RankPhase::up;
  if (phase_ == JobPhase::stopping || !is_here || leaving_.contains(e.rank)) return drop();
  ranks_.close_slot(ranks_.node_of(e.rank));
  leaving_.insert(e.rank);
  refill();
}

// Ranks that may work at once.
std::uint64_t JobMachine::most() const {
  return request_.ranks != 0 ? request_.ranks : cells();
}

// Somebody else is up. A job is never drained of its last ranks: those stay until others come.
bool JobMachine::can_leave() const {
  // Once members are asked what they hold, who comes up is none of this generation.
  const RankSet& up = phase_ == JobPhase::fencing ? members_ : ranks_.in(RankPhase::up);
  return std::any_of(up.begin(), up.end(), [&](RankId rank) { return !leaving_.contains(rank); });
}

RankSet JobMachine::leaving_members() const {
  RankSet both;
  if (!can_leave()) {
    if (members_.size() > most()) KINTSUGI_PROBE("leaving: all are to leave, and are too many");
    // All are to leave. Those beyond what can work do.
    for (std::size_t m = most(); m < members_.size(); ++m) both.insert(members_.items()[m]);
    return both;
  }
  for (const RankId rank : leaving_) {
    if (members_.contains(rank)) both.insert(rank);
  }
  return both;
}

// More ranks than were asked for, or than there are cells, live where a restarted supervisor finds those whom the former one
// had told to leave, or had started to take their place. The newest leave.
void JobMachine::shed_surplus() {
  const RankSet staying = difference(ranks_.in(RankPhase::up), leaving_);
  if (staying.size() > most()) KINTSUGI_PROBE("leaving: a surplus is shed");
  for (std::size_t s = most(); s < staying.size(); ++s) leaving_.insert(staying.items()[s]);
}

// Of the members to be: those that the plan in force gave nothing are none any more.
void JobMachine::release_idle() {
  if (!established_ || !plan_ || leaving_.empty()) return;
  const std::vector<RankId> idle = plan_->idle_ranks();
  for (const RankId rank : leaving_members()) {
    if (!std::binary_search(idle.begin(), idle.end(), rank)) continue;
    KINTSUGI_PROBE("leaving: an idle member is released");
    members_.erase(rank);
    leaving_.erase(rank);
    ranks_.set(rank, RankPhase::gone);
    emit(effect::KillRank{rank, "it has left the job, as it was told to"});
  }
}

// Nodes on which nothing is left to wait for.
void JobMachine::free_drained() {
  erase_if(draining_, [&](NodeId node) {
    if (ranks_.has_rank_on(node)) return false;
    if (ranks_.has_node(node)) KINTSUGI_PROBE("leaving: a drained node is free");
    if (ranks_.has_node(node)) emit(effect::NodeFree{node});
    return true;
  });
}

}  // namespace kintsugi
