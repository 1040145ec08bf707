// FleetRun: what the job machine asks for, and how long that takes.
#include <fmt/format.h>

#include "sim/fleet/fleet_run.hpp"

namespace kintsugi::sim {

namespace {

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = text.size();
  for (const char c : text) hash = fold(hash, static_cast<unsigned char>(c));
  return hash;
}

// Only nodes of the plan that the plan before did not have need weights beside their shards.
bool has_newcomers(const Plan& plan, const Plan* before) {
  if (before == nullptr) return true;
  auto known = before->ranks.begin();
  for (const PlanRank& r : plan.ranks) {
    while (known != before->ranks.end() && known->rank < r.rank) ++known;
    if (known == before->ranks.end() || known->rank != r.rank) return true;
  }
  return false;
}

}  // namespace

void FleetRun::carry_out(const JobEffect& effect) {
  decisions_ = fold(decisions_, effect.index());
  if (const auto* note = std::get_if<job_effect::Note>(&effect)) {
    decisions_ = fold(decisions_, hash_of(note->text));
  } else if (const auto* start = std::get_if<job_effect::StartRanks>(&effect)) {
    for (const PlanRank& r : start->ranks)
      decisions_ = fold(decisions_, (std::uint64_t{r.rank.value} << 32) | r.node.value);
    starts_.push_back(start->ranks);
    after(starting_ ? 0 : s_.policy.process_start, Kind::ranks_up, starts_.size() - 1);
  } else if (const auto* f = std::get_if<job_effect::Fence>(&effect)) {
    fence(*f);
  } else if (const auto* p = std::get_if<job_effect::Prepare>(&effect)) {
    prepare(*p);
  } else if (const auto* intend = std::get_if<job_effect::Intend>(&effect)) {
    decisions_ = fold(decisions_, number_of(intend->generation));
    // While a supervisor is told that all are ready: one wave down, one vote.
    if (training_.is_running()) {
      queue_.push(training_.next_commit(now()), {Kind::vote, number_of(job_->machine().generation())});
    }
  } else if (const auto* kill = std::get_if<job_effect::KillRank>(&effect)) {
    decisions_ = fold(decisions_, kill->rank.value);
    after(0, Kind::rank_down, kill->rank.value);
  } else if (const auto* free = std::get_if<job_effect::NodeFree>(&effect)) {
    const auto found = machine_of_.find(free->node);
    if (found != machine_of_.end()) after(0, Kind::node_free, found->second);
  } else if (std::holds_alternative<job_effect::Resume>(effect)) {
    resume();
  } else if (const auto* incident = std::get_if<job_effect::Incident>(&effect)) {
    const bool planned = incident->report.kind == "planned";
    out_.incidents.push_back({incident->report, planned || !struck_by_ ? "planned" : cause_name(struck_by_->first),
                              struck_by_ ? struck_by_->second : 0});
  } else if (const auto* stop = std::get_if<job_effect::Stop>(&effect)) {
    job_stopped(stop->why);
  }
}

void FleetRun::fence(const job_effect::Fence& f) {
  decisions_ = fold(decisions_, number_of(f.generation));
  const std::size_t members = job_ ? job_->living() : fold_.members;
  training_.stop(now(), "planned change");
  const Plan* in_force = job_ ? job_->in_force() : nullptr;
  const double takes = phase_cost_.fence(members, in_force) + phase_cost_.report(members);
  after(starting_ ? 0 : takes, Kind::answered, number_of(f.generation));
  if (!starting_) strike_recovery();
}

void FleetRun::prepare(const job_effect::Prepare& p) {
  ++out_.plans;
  const Digest digest = job_->machine().plan_digest();
  decisions_ = fold(fold(fold(decisions_, digest.high), digest.low), number_of(p.plan.generation));
  if (p.transition) {
    for (const ShardMove& m : p.transition->moves) {
      decisions_ = fold(decisions_, (std::uint64_t{m.shard.value} << 32) | m.to.value);
      decisions_ = fold(decisions_, m.from.value);
    }
  }
  const std::size_t members = p.plan.ranks.size();
  const double takes = phase_cost_.plan(members) +
                       phase_cost_.prepare(p.plan, p.transition ? &*p.transition : nullptr, layout_, fold_.scale,
                                           has_newcomers(p.plan, job_->in_force())) +
                       phase_cost_.wave(members);
  after(starting_ ? 0 : takes, Kind::prepared, number_of(p.plan.generation));
}

void FleetRun::resume() {
  set_pace(true);
  starting_ = false;
  queue_.push(training_.next_commit(now()), {Kind::first_commit, number_of(job_->machine().generation())});
  arm_step_faults();
  count_ranks();
}

double FleetRun::slowest() const {
  double slow = 1;
  for (const Machine& m : machines_) {
    if (m.in) slow = std::max(slow, m.slowdown);
  }
  return slow;
}

void FleetRun::set_pace(bool resumed) {
  if (!job_ || !job_->machine().plan()) return;
  if (!resumed && !training_.is_running()) return;
  const double slow = slowest();
  const double step = step_cost_.under(*job_->machine().plan(), slow).total();
  if (out_.step_seconds == 0) out_.step_seconds = step;
  const bool faster = step < out_.step_seconds * (1 - 1e-9);
  const char* const lost_to = slow > 1 ? "stragglers" : faster ? "extra nodes" : "short-handed";
  if (resumed)
    training_.run(now(), step, lost_to);
  else
    training_.change_pace(now(), step, lost_to);
}

void FleetRun::count_ranks() {
  const std::uint64_t ranks = job_ ? job_->living() * static_cast<std::uint64_t>(s_.workload.tensor) : std::uint64_t{0};
  const double at = now().ns * 1e-9;
  if (!out_.in_service.empty() && out_.in_service.back().at == at) out_.in_service.pop_back();
  if (out_.in_service.empty() || out_.in_service.back().ranks != ranks) out_.in_service.push_back({at, ranks});
}

// All that is left is a durable checkpoint: a new lineage begins there.
void FleetRun::job_stopped(const std::string& why) {
  decisions_ = fold(decisions_, hash_of(why));
  const std::string cause = struck_by_ ? cause_name(struck_by_->first) : "planned change";
  training_.stop(now(), cause);
  const double lost = out_.steps - durable_steps_;
  training_.go_back(lost, cause);
  out_.steps_lost += lost;
  ++out_.returns;
  ++lineage_;
  out_.why_ended = why;
  job_is_dead_ = true;
  constexpr std::uint64_t kMostReturns = 10'000;
  if (out_.returns >= kMostReturns) over_ = out_.ended = true;
  after(s_.policy.restore, Kind::restored);
}

void FleetRun::restored() {
  if (!job_) start_job();
}

}  // namespace kintsugi::sim
