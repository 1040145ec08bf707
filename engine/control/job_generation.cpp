// JobMachine: from one generation to the next. Fence, report, decide, prepare (DESIGN 7).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/mutant.hpp"
#include "base/probe.hpp"
#include "engine/control/job_machine.hpp"

namespace kintsugi {

using namespace job_event;  // NOLINT(google-build-using-namespace): the machine's own alphabet
namespace effect = job_effect;

namespace {

// Float32 master weight and two moments.
constexpr std::uint64_t kStateBytesPerElement = 12;

}  // namespace

const char* JobMachine::name_of(CauseKind kind) {
  switch (kind) {
    case CauseKind::planned: return "planned";
    case CauseKind::no_progress: return "no progress";
    case CauseKind::work_failed: return "work failed";
    case CauseKind::link_cut: return "link cut";
    case CauseKind::rank_lost: return "rank lost";
    case CauseKind::node_lost: return "node lost";
  }
  KINTSUGI_UNREACHABLE();
}

void JobMachine::begin_generation(const std::optional<Cause>& cause) {
  const std::string why = cause ? cause->why : "new ranks are up";
  // Only then has everybody what the plan gives them.
  const bool is_in_force = phase_ == JobPhase::running || phase_ == JobPhase::paused || phase_ == JobPhase::saving;
  if (cause) open_incident(*cause);
  const std::uint64_t allowed = kMaxChangesWithoutStep + wanted();
  if (++changes_ > allowed) {
    return stop(
        1, fmt::format("{} generation changes without a step becoming final; what happened last: {}", allowed, why));
  }
  for (const RankId rank : overdue_) {
    if (ranks_.state(rank) == RankPhase::up) ranks_.set(rank, RankPhase::gone);
  }
  overdue_.clear();
  patience_is_out_ = false;
  intended_.reset();
  prepared_.clear();
  finished_.clear();
  saved_.clear();
  shed_surplus();
  members_ = ranks_.in(RankPhase::up);
  for (const RankId rank : left_out_ranks()) members_.erase(rank);
  if (is_in_force) release_idle();
  if (members_.empty()) return start_over(why);
  generation_ = next_generation();
  if (incident_) incident_->generation = generation_;
  const RankSet asked = KINTSUGI_MUTANT(skips_a_fence) && established_ ? RankSet{} : members_;
  answers_ = FenceAnswers(asked, ranks_.nodes_with_ranks());
  emit(effect::Fence{generation_, why});
  enter(JobPhase::fencing, request_.deadlines.fencing);
}

// Nobody lives: new ranks, where memory may be left first.
void JobMachine::start_over(const std::string& why) {
  KINTSUGI_PROBE("job: no rank is left");
  launch(gap(), NodeSet(ranks_.nodes_with_ranks()));
  const bool hope = !absent_.empty() || ranks_.count(RankPhase::starting) + ranks_.count(RankPhase::gone) > 0;
  if (!hope && established_ && ranks_.nodes_with_ranks().empty()) return stop_lost(every_shard());
  if (!hope) return stop(1, why + "; no rank is left and no slot to start one in");
  emit(effect::Note{"no rank is left: starting new ones"});
  enter(JobPhase::starting, patience());
}

void JobMachine::on(const RankReported& e) {
  // Who was told to die has nothing to say any more.
  const bool awaited = phase_ == JobPhase::fencing && is_current(e.report.rank, e.generation);
  if (!awaited || overdue_.contains(e.report.rank)) return drop();
  RankReport report = e.report;
  report.node = ranks_.node_of(report.rank);
  if (!answers_.take(std::move(report))) return drop();
  if (answers_.complete()) consider_reports();
}

void JobMachine::on(const NodeReported& e) {
  // Only of ranks that were there and are no more: of others the node knows nothing.
  std::vector<RankReport> left_behind = e.left_behind;
  std::erase_if(left_behind, [&](const RankReport& report) {
    return !ranks_.knows(report.rank) || ranks_.node_of(report.rank) != e.node || members_.contains(report.rank);
  });
  if (phase_ != JobPhase::fencing || e.generation != generation_ || !answers_.take(e.node, left_behind)) {
    return drop();
  }
  if (answers_.complete()) consider_reports();
}

void JobMachine::on(const OthersReported& e) {
  // Who was told to die has nothing to say any more.
  const bool taken = phase_ == JobPhase::fencing && e.generation == generation_ &&
                     answers_.take_others(together(e.but_ranks, overdue_), e.but_nodes, e.said);
  if (!taken) return drop();
  if (answers_.complete()) consider_reports();
}

// No plan was made yet: the others need no new fence to go on without those. Of a rack's nodes, that are lost one after
// the other, the first makes a generation.
void JobMachine::fence_without(NodeId node, const RankSet& lost, const Cause& cause) {
  for (const RankId rank : lost) members_.erase(rank);
  if (members_.empty()) return begin_generation(cause);
  answers_.forget(node, lost);
  if (!lost.empty()) explain_incident(cause);
  if (answers_.complete()) consider_reports();
}

void JobMachine::consider_reports() {
  if (incident_) incident_->fenced = now_;
  const std::vector<RankReport> named = answers_.take_reports();
  const Reports reports(named, &answers_.counted());
  Cut cut;
  // A supervisor that was restarted before it heard of any step finds it in what members report.
  const bool is_trained =
      established_ || (reports.counted != nullptr && reports.counted->record) ||
      std::any_of(named.begin(), named.end(), [](const RankReport& r) { return r.record.has_value(); });
  if (is_trained && !established_) KINTSUGI_PROBE("job: members know of a step, and the supervisor of none");
  if (is_trained) {
    cut = decide_cut(reports, known_, static_cast<std::uint32_t>(layout_->shards().size()));
    for (const std::string& text : cut.disagreements) emit(effect::Note{text});
    if (cut.step < step_) cut.lost = every_shard();
    // What the first step starts from is a function of the job: it can be made again, where later state cannot.
    const bool is_first_state = !known_ && !cut.record && absent_.empty() && ranks_.count(RankPhase::gone) == 0;
    if (cut.record && cut.step > step_) KINTSUGI_PROBE("job: a record is learnt from reports");
    if (!cut.lost.empty() && is_first_state) KINTSUGI_PROBE("job: the first state is made once more");
    if (!cut.lost.empty() && !is_first_state) return give_up_unless_more_may_come(cut.lost);
    established_ = cut.lost.empty();
    if (!established_) emit(effect::Note{"no step is final yet: state is made anew"});
    if (cut.record && cut.step > step_) became_final(*cut.record);
    step_ = cut.step;
  }
  go_on_from(cut, reports);
}

void JobMachine::go_on_from(const Cut& cut, const Reports& reports) {
  PlanRequest request{request_.job, request_.lineage, generation_, {}};
  const RankSet idle = leaving_members();
  for (const RankId rank : members_) {
    request.members.push_back(ranks_.member(rank));
    request.members.back().idle = idle.contains(rank);
  }
  request.copies = reachable_copies(cut, reports, request.members);
  NodeSet out_of_reach;
  for (std::size_t s = 0; s < request.copies.size(); ++s) {
    if (!request.copies[s].empty()) continue;
    for (const RankId holder : cut.holders[s]) out_of_reach.insert(ranks_.node_of(holder));
  }
  if (!out_of_reach.empty()) return start_where_state_is(out_of_reach);

  if (established_ && plan_) request.in_force = &*plan_;
  Result<Plan> plan = make_plan(request, request_.config, *layout_);
  if (!plan) return stop(2, plan.error().message);
  if (!established_) return prepare(std::move(*plan), std::nullopt);
  Transition transition = plan_transition(*plan, cut, reports, interrupted_);
  prepare(std::move(*plan), std::move(transition));
}

void JobMachine::start_where_state_is(const NodeSet& nodes) {
  KINTSUGI_PROBE("job: the last copies lie where no rank is");
  for (const NodeId node : nodes) {
    emit(effect::Note{fmt::format("the last copies of some shards lie on {}, where no rank is left: starting one",
                                  ranks_.name_of(node))});
  }
  launch(nodes.size(), nodes);
  members_.clear();
  enter(JobPhase::starting, request_.deadlines.starting);
}

void JobMachine::prepare(Plan plan, std::optional<Transition> transition) {
  std::uint64_t bytes_moved = 0;
  if (transition) {
    for (const ShardMove& move : transition->moves) {
      const auto elements = static_cast<std::uint64_t>(layout_->shard(move.shard).count);
      if (!move.take_over) bytes_moved += elements * kStateBytesPerElement;
    }
  }
  if (incident_) incident_->bytes_moved = bytes_moved;
  patience_is_out_ = false;
  plan_ = std::move(plan);
  plan_digest_ = plan_->digest();
  transition_ = std::move(transition);
  emit(effect::Note{"preparing: " + plan_->reason});
  emit(effect::Prepare{*plan_, transition_, bytes_moved});
  enter(JobPhase::preparing, request_.deadlines.preparing);
}

// What a process holds whose end was not seen is reported by nobody.
void JobMachine::give_up_unless_more_may_come(const std::vector<ShardId>& lost) {
  if (ranks_.in(RankPhase::up) != members_) {  // who came meanwhile may have them, or was left out
    link_faults_.forget();
    return begin_generation(std::nullopt);
  }
  const RankSet unseen = ranks_.in(RankPhase::gone);
  if (unseen.empty() && absent_.empty()) return stop_lost(lost);
  KINTSUGI_PROBE("job: missing shards are waited for");
  std::string whom = unseen.empty() ? "" : "the end of " + ranks_.names_of(unseen) + " and what it left behind";
  for (const auto& [node, name] : absent_) whom += (whom.empty() ? "" : ", ") + ("node " + name);
  emit(effect::Note{fmt::format("{} shards are missing: waiting for {}", lost.size(), whom)});
  members_.clear();
  enter(JobPhase::starting, patience());
}

std::vector<ShardId> JobMachine::every_shard() const {
  std::vector<ShardId> all;
  for (const Shard& shard : layout_->shards()) all.push_back(shard.id);
  return all;
}

void JobMachine::stop_lost(const std::vector<ShardId>& shards) {
  constexpr std::size_t kNamed = 8;
  std::string names;
  for (std::size_t i = 0; i < std::min(kNamed, shards.size()); ++i) {
    names += (i == 0 ? "" : ", ") + to_string(shards[i]);
  }
  stop(1,
       fmt::format("{} of {} shards are lost, no copy of their state after step {} is left (shards {}{}), and there "
                   "is no durable checkpoint to return to: start the job again, with more replicas or nodes",
                   shards.size(), layout_->shards().size(), step_.value, names, shards.size() > kNamed ? ", ..." : ""));
}

// Every rank has written its part: the directory is published whoever is lost.
bool JobMachine::is_publishing() const {
  return phase_ == JobPhase::saving && saved_ == members_;
}

void JobMachine::lose_members(const RankSet& lost, const Cause& cause) {
  if (is_publishing()) return;
  if (!overdue_.empty()) KINTSUGI_PROBE("job: a member is lost while silent ones are");
  for (const RankId rank : lost) overdue_.erase(rank);
  // Of those killed for their silence all ends are awaited: one change for all of them.
  const bool expected = !overdue_.empty() && cause.kind == CauseKind::rank_lost;
  if (!expected) begin_generation(cause);
}

// Who is silent at the deadline is killed; at the next one it is gone whether or not its end was seen.
void JobMachine::on_overdue(const RankSet& silent_ranks, const NodeSet& silent_nodes, const std::string& what) {
  if (patience_is_out_) {
    KINTSUGI_PROBE("job: a silent rank's end was not seen in time");
    Cause cause{CauseKind::rank_lost, ranks_.names_of(silent_ranks), ranks_.names_of(silent_ranks) + " " + what};
    for (const NodeId node : silent_nodes) {
      cause = {CauseKind::node_lost, ranks_.name_of(node), ranks_.name_of(node) + " " + what};
      ranks_.lose_node(node);
    }
    overdue_ = together(overdue_, silent_ranks);
    return begin_generation(cause);
  }
  KINTSUGI_PROBE("job: a silent member is killed");
  patience_is_out_ = true;
  overdue_ = silent_ranks;
  for (const RankId rank : silent_ranks) emit(effect::KillRank{rank, what});
  enter(phase_, phase_ == JobPhase::fencing ? request_.deadlines.fencing : request_.deadlines.preparing);
}

void JobMachine::became_final(const DecisionRecord& record) {
  step_ = record.step;
  known_ = record;
  changes_ = 0;
  link_faults_.worked();
  emit(effect::Report{record});
}

void JobMachine::open_incident(const Cause& cause) {
  const bool step_in_progress = phase_ == JobPhase::running && steps_left();
  if (incident_) {
    KINTSUGI_PROBE("job: a fault within a change");
    ++incident_->restarts;
    incident_->fenced.reset();
    incident_->resumed.reset();
  }
  if (step_in_progress && cause.kind != CauseKind::planned) {
    interrupted_ = {*plan_, {}, {}};
    if (transition_) interrupted_->from = transition_->step;
    if (transition_) interrupted_->sums = transition_->sums;
  }
  explain_incident(cause);
}

void JobMachine::explain_incident(const Cause& cause) {
  if (!incident_) {
    incident_.emplace();
    incident_->id = ++incident_count_;
    incident_->detected = now_;
    incident_->generation = generation_;
  }
  if (incident_->kind.empty() || cause.kind > incident_kind_) {
    incident_kind_ = cause.kind;
    incident_->kind = name_of(cause.kind);
    incident_->target = cause.target;
    incident_->why = cause.why;
  }
}

void JobMachine::close_incident() {
  if (incident_) emit(effect::Incident{*std::exchange(incident_, std::nullopt)});
  interrupted_.reset();
}

}  // namespace kintsugi
