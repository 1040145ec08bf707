#include "sim/fleet/fleet_run.hpp"

#include <fmt/format.h>

namespace kintsugi::sim {

namespace {

constexpr std::size_t kMostWaiting = 1u << 20;
constexpr std::uint64_t kRecoveryStream = 2, kSpotStream = 3;

}  // namespace

FleetRun::FleetRun(const Scenario& scenario, const Timeline& timeline, std::uint64_t seed)
    : s_(scenario),
      timeline_(timeline),
      seed_(seed),
      fold_(fold_of(scenario)),
      layout_(fold_.job.model),
      step_cost_(scenario),
      phase_cost_(scenario, step_cost_),
      training_(out_),
      queue_(clock_, kMostWaiting),
      recovery_draws_(seed, kRecoveryStream),
      spot_draws_(seed, kSpotStream),
      machines_(scenario.cluster.provisioned()),
      step_fault_done_(scenario.faults.size(), false) {
  out_.policy = "kintsugi";
  out_.tokens_per_step = step_cost_.tokens();
  out_.in_job_ranks = s_.ranks();
  out_.provisioned_ranks = std::uint64_t{s_.cluster.provisioned()} * s_.cluster.ranks_per_node;
}

void FleetRun::after(double seconds, Kind kind, std::uint64_t number) {
  queue_.push(now() + Duration{static_cast<std::int64_t>(seconds * 1e9 + 0.5)}, {kind, number});
}

void FleetRun::start_job() {
  starting_ = true;
  const std::uint32_t wanted = s_.spot.gap ? 0 : fold_.members;
  std::uint32_t here = 0;
  for (const Machine& m : machines_) here += m.in ? 1 : 0;
  job_ = std::make_unique<JobShell>(fold_, lineage_, wanted, std::min(here, s_.cluster.nodes), now(),
                                    [this](const JobEffect& effect) { carry_out(effect); });
  for (std::uint32_t m = 0; m < machines_.size(); ++m) {
    if (machines_[m].in) join(m);
  }
}

FleetOutcome FleetRun::run(const Progress& progress) {
  for (Machine& m : machines_) m.in = true;
  start_job();
  if (!timeline_.faults.empty()) after(timeline_.faults[0].at, Kind::fault, 0);
  if (s_.spot.gap) after(draw(*s_.spot.gap, spot_draws_), Kind::spot_comes);
  after(s_.policy.checkpoint_interval, Kind::durable);
  after(s_.duration, Kind::end);
  while (!over_) {
    const FleetEvent event = queue_.pop();
    happen(event);
    if (std::exchange(job_is_dead_, false)) {
      out_.machine_steps += job_->machine_steps();
      job_.reset();
    }
    if (progress && queue_.popped() % 64 == 0) progress(now().ns * 1e-9 / s_.duration);
  }
  training_.finish(now());
  out_.wall = now().ns * 1e-9;
  if (job_) out_.machine_steps += job_->machine_steps();
  out_.events = queue_.popped();
  out_.event_hash = fold(queue_.hash(), decisions_);
  return std::move(out_);
}

void FleetRun::happen(const FleetEvent& e) {
  const bool of_supervisor = e.kind == Kind::answered || e.kind == Kind::prepared || e.kind == Kind::ranks_up ||
                             e.kind == Kind::vote || e.kind == Kind::noticed || e.kind == Kind::rank_down;
  if (supervisor_lost_ && of_supervisor) return waiting_.push_back(e);
  const bool current = job_ && number_of(job_->machine().generation()) == e.number;
  switch (e.kind) {
    case Kind::fault:
      if (e.number + 1 < timeline_.faults.size()) {
        const double wait = timeline_.faults[e.number + 1].at - now().ns * 1e-9;
        after(std::max(0.0, wait), Kind::fault, e.number + 1);
      }
      return strike(timeline_.faults[e.number]);
    case Kind::extra_fault: return strike(extra_[e.number]);
    case Kind::noticed: return notice(struck_[e.number]);
    case Kind::answered:
      if (current && job_->machine().phase() == JobPhase::fencing) job_->answer_fence(now());
      return;
    case Kind::prepared:
      if (current && job_->machine().phase() == JobPhase::preparing) job_->all_prepared(now());
      return;
    case Kind::ranks_up:
      if (job_) job_->ranks_up(starts_[e.number], now());
      return;
    case Kind::rank_down: {
      if (!job_) return;
      const RankId rank{static_cast<std::uint32_t>(e.number)};
      return job_->rank_down(rank, "was killed", true, now());
    }
    case Kind::node_free: {
      Machine& m = machines_[e.number];
      if (m.in && m.leaving) lose_machine(static_cast<std::uint32_t>(e.number), m.out, "it was drained");
      return;
    }
    case Kind::first_commit:
      if (!current || !training_.is_running() || supervisor_lost_) return;
      if (struck_by_) out_.recovery.push_back(now().ns * 1e-9 - struck_by_->second);
      job_->commit(job_->has_intent(), now());  // closes the incident
      struck_by_.reset();
      return;
    case Kind::vote:
      if (current && training_.is_running() && job_->has_intent()) job_->commit(true, now());
      return;
    case Kind::node_back:
      if (!machines_[e.number].in) join(static_cast<std::uint32_t>(e.number));
      return;
    case Kind::spot_comes: return spot_comes();
    case Kind::spot_leaves: return spot_leaves(static_cast<std::uint32_t>(e.number));
    case Kind::durable:
      durable_steps_ = training_.steps_at(now());
      return after(s_.policy.checkpoint_interval, Kind::durable);
    case Kind::supervisor_back: return supervisor_back();
    case Kind::adoption_over:
      if (job_ && job_->machine().phase() == JobPhase::adopting) job_->deadline_passed(now());
      return;
    case Kind::orphaned:
      if (supervisor_lost_ && supervisor_losses_ == e.number) training_.stop(now(), "supervisor");
      return;
    case Kind::restored: return restored();
    case Kind::end: over_ = true; return;
  }
  KINTSUGI_UNREACHABLE();
}

std::string FleetRun::cause_name(std::uint32_t cause) const {
  return timeline_.causes.at(cause);
}

}  // namespace kintsugi::sim
