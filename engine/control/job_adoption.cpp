// JobMachine: a restarted supervisor finds its job (DESIGN C6). Its nodes have kept ranks and memory, and most often the job
// trains as if nothing had happened.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/mutant.hpp"
#include "base/probe.hpp"
#include "engine/control/job_machine.hpp"

namespace kintsugi {

using namespace job_event;  // NOLINT(google-build-using-namespace): the machine's own alphabet
namespace effect = job_effect;

JobEffects JobMachine::adopt(const Adoption& adoption, Instant now) {
  KINTSUGI_ASSERT(phase_ == JobPhase::waiting && deadline_number_ == 0);
  KINTSUGI_ASSERT(adoption.promised.epoch <= request_.epoch);
  now_ = now;
  promised_ = generation_ = adoption.promised;
  ranks_.adopt({KINTSUGI_MUTANT(reuses_rank_numbers) ? 0 : adoption.next_rank});
  incident_count_ = adoption.incidents;
  pausing_ = adoption.paused;
  step_ = adoption.first;
  absent_ = adoption.nodes;
  if (adoption.record) learn(*adoption.record);
  // Where nothing was trained there is nothing to wait long for.
  enter(JobPhase::adopting, promised_->counter == 0 ? request_.deadlines.adopting : patience());
  return std::exchange(told_.effects, {});
}

// Members hold out for the job's orphan limit; the margin is for the last of them to find the way back.
Duration JobMachine::patience() const {
  if (absent_.empty()) return request_.deadlines.starting;
  return std::max(request_.deadlines.starting,
                  seconds(request_.config.resilience.orphan_limit) + request_.deadlines.adopting);
}

void JobMachine::learn(const DecisionRecord& record) {
  const bool mine = record.job == request_.job && record.lineage == request_.lineage;
  if (!mine || record.step <= step_) return drop();
  step_ = record.step;
  known_ = record;
}

void JobMachine::place(const NodeRestated& e) {
  for (const RankId rank : e.gone) ranks_.place(rank, e.node, RankPhase::down, now_);
  for (const NodeRestated::Rank& r : e.living) {
    if (!ranks_.place(r.rank, e.node, RankPhase::starting, now_)) {
      drop();
      continue;
    }
    if (r.kernel_variant.empty()) continue;
    if (!kernel_variant_) kernel_variant_ = r.kernel_variant;
    if (*kernel_variant_ == r.kernel_variant)
      ranks_.set(r.rank, RankPhase::up);
    else
      refuse(r.rank, ranks_.name_of(r.rank) + " computes with another kernel variant than the others");
  }
}

void JobMachine::on(const NodeRestated& e) {
  if (!ranks_.has_node(e.node)) return drop();
  ranks_.open_node(e.node);
  absent_.erase(e.node);
  place(e);
  if (phase_ != JobPhase::adopting) KINTSUGI_PROBE("adoption: a node comes late");
  if (phase_ == JobPhase::stopping) return emit(effect::Stop{exit_code_, why_});
  if (phase_ == JobPhase::starting) return leave_starting_if_ready();
  if (phase_ != JobPhase::adopting) return refill();
  if (restated_.empty()) enter(JobPhase::adopting, request_.deadlines.adopting);
  hear(e);
  if (e.record) learn(*e.record);
  consider_adoption();
}

void JobMachine::Witnesses::hear(NodeId node) {
  const auto at = nodes.find(node);
  if (at != nodes.end() && !std::exchange(at->second, true)) --awaited;
}

void JobMachine::Witnesses::forget(NodeId node) {
  const auto at = nodes.find(node);
  if (at != nodes.end() && std::exchange(at->second, false)) ++awaited;
}

void JobMachine::hear(const NodeRestated& e) {
  restated_[e.node] = {e.generation, std::nullopt};
  if (e.in_force) restated_[e.node].in_force = e.in_force->generation;
  if (e.in_force && (!witnesses_.plan || witnesses_.plan->generation < e.in_force->generation)) {
    witnesses_ = {e.in_force, {}, 0};
    for (const PlanRank& r : e.in_force->ranks) witnesses_.nodes.emplace(r.node, false);
    witnesses_.awaited = witnesses_.nodes.size();
    for (const auto& [node, restated] : restated_) witnesses_.hear(node);
  }
  witnesses_.hear(e.node);
}

void JobMachine::consider_adoption() {
  const std::optional<Plan>& plan = witnesses_.plan;
  if (!plan || plan->generation != promised_ || witnesses_.awaited > 0) return;  // somebody may still come
  const bool whole = std::all_of(plan->ranks.begin(), plan->ranks.end(), [&](const PlanRank& r) {
    return restated_.at(r.node).in_force == plan->generation && ranks_.knows(r.rank) &&
           ranks_.state(r.rank) == RankPhase::up;
  });
  // After a vote for a planned change members wait for its fence.
  const bool left = known_ && known_->generation == plan->generation && known_->next_generation;
  if (left) KINTSUGI_PROBE("adoption: after a vote for a change");
  if (!whole || left) return go_on_with_who_is_here();
  adopt_plan(*plan);
}

void JobMachine::adopt_plan(Plan plan) {
  KINTSUGI_PROBE("adoption: undisturbed");
  for (const PlanRank& r : plan.ranks) members_.insert(r.rank);
  plan_ = std::move(plan);
  plan_digest_ = plan_->digest();
  generation_ = plan_->generation;
  established_ = true;
  emit(effect::Note{fmt::format("adopted: training went on under generation {}", to_string(generation_))});
  emit(effect::Adopted{*plan_});
  if (known_) emit(effect::Report{*known_});
  enter(JobPhase::running, request_.deadlines.step);
  refill();
  hear_what_was_said_before();
}

// Work that ended, well or not, while not all nodes were back: nobody says it a third time.
void JobMachine::hear_what_was_said_before() {
  if (!finished_before_.empty()) KINTSUGI_PROBE("adoption: of a job that is done");
  if (!failed_before_.empty()) KINTSUGI_PROBE("adoption: of work that failed");
  for (const auto& [rank, finished] : std::exchange(finished_before_, {})) on(finished);
  for (const auto& [rank, failed] : std::exchange(failed_before_, {})) on(failed);
}

std::optional<JobMachine::Cause> JobMachine::why_not_adopted() const {
  const std::optional<Plan>& plan = witnesses_.plan;
  if (!plan)
    return Cause{CauseKind::no_progress, "generation " + to_string(*promised_),
                 "the supervisor was lost within a generation change"};
  for (const PlanRank& r : plan->ranks) {
    if (const auto absent = absent_.find(r.node); absent != absent_.end()) {
      return Cause{CauseKind::node_lost, "node " + absent->second,
                   "node " + absent->second + " did not come back after the supervisor was lost"};
    }
  }
  for (const PlanRank& r : plan->ranks) {
    if (ranks_.knows(r.rank) && ranks_.state(r.rank) == RankPhase::up) continue;
    return Cause{CauseKind::rank_lost, name_of(r.rank), name_of(r.rank) + " ended while there was no supervisor"};
  }
  return Cause{CauseKind::planned, "generation " + to_string(*promised_), "the supervisor was lost within a change"};
}

void JobMachine::go_on_with_who_is_here() {
  KINTSUGI_PROBE("adoption: with who is here");
  if (restated_.empty()) KINTSUGI_PROBE("adoption: nobody came");
  if (restated_.empty()) absent_.clear();  // nobody came for as long as they hold out
  if (witnesses_.plan) plan_ = witnesses_.plan;
  established_ = known_ || plan_;
  finished_before_.clear();
  failed_before_.clear();
  if (known_) emit(effect::Report{*known_});
  if (established_) return begin_generation(why_not_adopted());
  absent_.clear();
  if (ranks_.count(RankPhase::up) + ranks_.count(RankPhase::starting) == 0) {
    enter(JobPhase::waiting, request_.deadlines.waiting);
    return try_start();
  }
  replace_lost();
  enter(JobPhase::starting, request_.deadlines.starting);
  leave_starting_if_ready();
}

}  // namespace kintsugi
