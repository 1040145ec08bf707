// JobMachine: which ranks there are. How many are started and where, who is lost, who is let in.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/mutant.hpp"
#include "base/probe.hpp"
#include "engine/control/job_machine.hpp"

namespace kintsugi {

using namespace job_event;  // NOLINT(google-build-using-namespace): the machine's own alphabet
namespace effect = job_effect;

std::uint64_t JobMachine::cells() const {
  return static_cast<std::uint64_t>(request_.config.parallel.stages.value_or(1) * request_.config.batch.lanes);
}

std::uint64_t JobMachine::wanted() const {
  if (request_.ranks != 0) return request_.ranks;
  return std::max<std::uint64_t>(1, std::min(ranks_.slots(), cells()));
}

// Who leaves by plan, or cannot reach the others, is made up for.
std::uint64_t JobMachine::gap() const {
  const RankSet& up = ranks_.in(RankPhase::up);
  const auto leaving = std::count_if(leaving_.begin(), leaving_.end(), [&](RankId r) { return up.contains(r); });
  const std::uint64_t count =
      up.size() - static_cast<std::uint64_t>(leaving) - left_out_ranks().size() + ranks_.count(RankPhase::starting);
  return wanted() - std::min(wanted(), count);
}

void JobMachine::try_start() {
  if (ranks_.node_count() < request_.nodes) {
    return emit(effect::Note{fmt::format("waiting: {} of {} nodes", ranks_.node_count(), request_.nodes)});
  }
  if (ranks_.slots() < wanted()) {
    return emit(effect::Note{
        fmt::format("waiting: {} of {} slots on {} nodes", ranks_.slots(), wanted(), ranks_.node_count())});
  }
  emit(effect::Note{fmt::format("starting {} ranks", wanted())});
  launch(wanted());
  enter(JobPhase::starting, request_.deadlines.starting);
}

std::uint64_t JobMachine::launch(std::uint64_t count, const NodeSet& first) {
  std::vector<PlanRank> started = ranks_.start(count, first, now_);
  const std::uint64_t launched = started.size();
  if (launched > 0) emit(effect::StartRanks{std::move(started)});
  return launched;
}

std::size_t JobMachine::max_restarts() const {
  return std::max<std::size_t>(kMaxRestarts, wanted() / kRanksOfRestart);
}

bool JobMachine::replace_lost() {
  while (!restarts_.empty() && restarts_.front() + kRestartWindow <= now_) restarts_.pop_front();
  const std::uint64_t affordable = max_restarts() - std::min(max_restarts(), restarts_.size());
  restarts_.resize(restarts_.size() + launch(std::min(gap(), affordable)), now_);
  return restarts_.size() < max_restarts();
}

// The first time all that were asked for, later anybody: the others are let in as they come.
std::uint64_t JobMachine::needed() const {
  return established_ ? 1 : std::max<std::uint64_t>(1, request_.ranks);
}

void JobMachine::leave_starting_if_ready() {
  if (ranks_.count(RankPhase::starting) > 0 || ranks_.count(RankPhase::up) < needed()) return;
  begin_generation(std::nullopt);
}

void JobMachine::lost_while_starting(const std::string& why) {
  const bool affordable = replace_lost();
  if (!affordable) KINTSUGI_PROBE("ranks: the budget of restarts is spent");
  const bool stuck = ranks_.count(RankPhase::starting) == 0 && ranks_.count(RankPhase::up) < needed();
  if (stuck && !affordable) {
    return stop(1, fmt::format("{}; {} ranks were replaced within {} s, which is no accident", why, restarts_.size(),
                               kRestartWindow.ns / seconds(1).ns));
  }
  leave_starting_if_ready();
}

// There is state to go on from, and somebody who can.
void JobMachine::go_on_without(const RankSet& silent) {
  KINTSUGI_PROBE("ranks: the change goes on without silent newcomers");
  for (const RankId rank : silent) refuse(rank, "no hello in time from " + ranks_.name_of(rank));
  leave_starting_if_ready();
}

void JobMachine::refuse(RankId rank, const std::string& why) {
  emit(effect::Note{why});
  emit(effect::KillRank{rank, why});
  ranks_.set(rank, RankPhase::gone);
}

// Fills the gap while training goes on, and lets in whoever is up.
void JobMachine::refill() {
  const bool is_paused = phase_ == JobPhase::paused;
  if ((phase_ != JobPhase::running && !is_paused) || intended_ || !steps_left()) return;
  // Whoever has a lower number was started before.
  while (ranks_.count(RankPhase::starting) > 0) {
    const RankId oldest = *ranks_.in(RankPhase::starting).begin();
    if (ranks_.started(oldest) + request_.deadlines.starting >= now_) break;
    refuse(oldest, "no hello in time from " + ranks_.name_of(oldest));
  }
  if (!KINTSUGI_MUTANT(never_replaces_the_lost)) replace_lost();
  const bool change_is_due =
      ranks_.count(RankPhase::up) - left_out_ranks().size() != members_.size() || !leaving_members().empty();
  if (ranks_.count(RankPhase::starting) > 0 || !(change_is_due || (pausing_ && !is_paused))) return;
  // Between two steps already: no vote is needed.
  if (is_paused) KINTSUGI_PROBE("ranks: a paused job changes");
  if (is_paused || KINTSUGI_MUTANT(changes_without_a_vote))
    return begin_generation(Cause{CauseKind::planned, "the paused job", "its ranks change"});
  intended_ = next_generation();
  emit(effect::Intend{*intended_});
}

void JobMachine::on(const NodeReady& e) {
  ranks_.add_node(e.node, e.name, e.rack, e.slots);
  if (e.runs_this_job) return ranks_.close_node(e.node);  // until it has said what is in its slots
  if (phase_ == JobPhase::waiting) return try_start();
  if (phase_ == JobPhase::starting) {
    const RankId before = next_rank();
    replace_lost();
    if (next_rank() != before) enter(JobPhase::starting, patience());  // they have as long as the first had
  }
  refill();
}

void JobMachine::on(const RankUp& e) {
  const bool awaited = ranks_.knows(e.rank) && ranks_.state(e.rank) == RankPhase::starting;
  if (!awaited || phase_ == JobPhase::stopping) return drop();
  if (!kernel_variant_) kernel_variant_ = e.kernel_variant;
  if (*kernel_variant_ != e.kernel_variant) {
    const std::string why = fmt::format(
        "{} computes with kernel variant '{}', the others with '{}': bits would depend on the plan; "
        "use machines of one kind for a job",
        ranks_.name_of(e.rank), e.kernel_variant, *kernel_variant_);
    if (phase_ == JobPhase::starting && !established_) return stop(1, why);
    ranks_.close_node(ranks_.node_of(e.rank));
    refuse(e.rank, why);
    if (phase_ == JobPhase::starting) return lost_while_starting(why);
    return refill();
  }
  ranks_.set(e.rank, RankPhase::up);
  if (phase_ == JobPhase::starting) return leave_starting_if_ready();
  if (phase_ == JobPhase::adopting) return consider_adoption();
  refill();
}

void JobMachine::on(const RankDown& e) {
  if (!ranks_.knows(e.rank) || ranks_.state(e.rank) == RankPhase::down) return drop();
  const bool was_up = ranks_.state(e.rank) == RankPhase::up;
  const std::string why = fmt::format("{} {}", ranks_.name_of(e.rank), e.why);
  ranks_.set(e.rank, RankPhase::down);
  link_faults_.down(e.rank);
  leaving_.erase(e.rank);
  free_drained();
  if (phase_ == JobPhase::stopping) {
    if (!e.expected) emit(effect::Note{why + " while stopping"});
    return end_if_all_down();
  }
  if (phase_ == JobPhase::adopting) return consider_adoption();
  if (phase_ == JobPhase::starting) return lost_while_starting(why);
  if (was_up && members_.contains(e.rank)) {
    return lose_members({e.rank}, {CauseKind::rank_lost, ranks_.name_of(e.rank), why});
  }
  refill();
}

void JobMachine::on(const NodeLost& e) {
  if (!ranks_.has_node(e.node)) return drop();
  const std::string why = fmt::format("{} is lost: {}", ranks_.name_of(e.node), e.why);
  RankSet lost;
  for (const RankId rank : ranks_.ranks_on(e.node)) {
    if (members_.contains(rank) && ranks_.state(rank) == RankPhase::up) lost.insert(rank);
  }
  const bool had_ranks = ranks_.nodes_with_ranks().contains(e.node);
  ranks_.lose_node(e.node);
  link_faults_.lost(e.node);
  erase_if(leaving_, [&](RankId rank) { return ranks_.state(rank) == RankPhase::down; });
  draining_.erase(e.node);
  if (restated_.erase(e.node) > 0) witnesses_.forget(e.node);
  if (phase_ == JobPhase::stopping) return end_if_all_down();
  if (phase_ == JobPhase::adopting) return;
  if (phase_ == JobPhase::starting && had_ranks) return lost_while_starting(why);
  const Cause cause{CauseKind::node_lost, ranks_.name_of(e.node), why};
  if (phase_ == JobPhase::fencing && (lost.empty() || overdue_.empty())) return fence_without(e.node, lost, cause);
  if (!lost.empty()) return lose_members(lost, cause);
  refill();
}

// Who is up and no member, on nodes that cannot reach another one.
RankSet JobMachine::left_out_ranks() const {
  RankSet ranks;
  for (const NodeId node : left_out()) {
    for (const RankId rank : ranks_.ranks_on(node)) {
      if (ranks_.state(rank) == RankPhase::up) ranks.insert(rank);
    }
  }
  return ranks;
}

NodeSet JobMachine::left_out() const {
  const auto loss_of = [&](NodeId node) {
    LinkFaults::Loss loss;
    if (!plan_) return loss;
    for (const RankId rank : ranks_.ranks_on(node)) loss.cells += plan_->has(rank) ? plan_->cells_of(rank) : 0;
    const auto is_there = [&](RankId rank) { return ranks_.node_of(rank) == node; };
    loss.loses_state = std::any_of(plan_->shards.begin(), plan_->shards.end(), [&](const ShardHolders& h) {
      return is_there(h.primary) && std::all_of(h.replicas.begin(), h.replicas.end(), is_there);
    });
    return loss;
  };
  return link_faults_.left_out(ranks_.nodes_with_ranks(), loss_of, now_);
}

// Of the generation before, too: whoever speaks second says the same of the other side.
std::optional<JobMachine::Cause> JobMachine::accuse(const RankFailed& e) {
  if (!ranks_.knows(e.rank)) return std::nullopt;
  std::optional<Cause> cut;
  for (const RankId peer : e.lost_peers) {
    if (!ranks_.knows(peer) || ranks_.state(peer) != RankPhase::up) continue;
    const NodeId here = ranks_.node_of(e.rank), there = ranks_.node_of(peer);
    if (!link_faults_.accuse({here, there, peer, e.generation}, now_)) continue;
    const std::string between = fmt::format("between {} and {}", ranks_.name_of(here), ranks_.name_of(there));
    cut = Cause{CauseKind::link_cut, "the network " + between,
                fmt::format("{} cannot reach {}, twice in a row, though both reach the supervisor: they are kept apart "
                            "for a time",
                            ranks_.name_of(e.rank), ranks_.name_of(peer))};
  }
  return cut;
}

void JobMachine::on(const RankFailed& e) {
  if (phase_ == JobPhase::adopting) {
    failed_before_.insert_or_assign(e.rank, e);
    return;
  }
  const std::optional<Cause> cut = accuse(e);
  const bool at_work = phase_ == JobPhase::fencing || phase_ == JobPhase::preparing || phase_ == JobPhase::running;
  if (cut && at_work) return begin_generation(cut);
  if (phase_ == JobPhase::stopping || !is_current(e.rank, e.generation) || is_publishing()) return drop();
  const std::string why = fmt::format("{}: {}", ranks_.name_of(e.rank), e.error.message);
  // Evidence only: who failed lives, and whom it accuses may.
  if (e.error.action == ErrorAction::end_generation) {
    return begin_generation(Cause{CauseKind::work_failed, ranks_.name_of(e.rank), why});
  }
  // Configuration and input show while ranks prepare for the first time; from then on it is the job's failure.
  const bool input = e.error.action == ErrorAction::tell_user && phase_ == JobPhase::preparing && !established_;
  stop(input ? 2 : 1, why);
}

}  // namespace kintsugi
