// FleetRun: what strikes the fleet, who notices when, and who comes back.
#include <fmt/format.h>

#include "sim/fleet/fleet_run.hpp"

namespace kintsugi::sim {

bool FleetRun::is_working(std::uint32_t machine) const {
  return machines_[machine].in && job_ && job_->rank_on(machines_[machine].node).has_value();
}

std::string FleetRun::name_of(std::uint32_t machine) const {
  return machine < s_.cluster.provisioned() ? fmt::format("n{}", machine) : fmt::format("spot{}", machine);
}

// Who is silent is noticed by silence; who ends, by its end.
double FleetRun::detection(const Fault& fault) const {
  const bool whole_node =
      fault.kind == FaultClass::node || fault.kind == FaultClass::rack || fault.kind == FaultClass::network_switch;
  return fault.hang || whole_node ? s_.policy.hang_detection : s_.policy.process_detection;
}

void FleetRun::strike(const Fault& fault) {
  ++out_.faults;
  ++out_.lost[cause_name(fault.cause)].events;
  if (fault.kind == FaultClass::supervisor) return strike_supervisor(fault);
  bool works = false;
  for (const std::uint32_t m : nodes_struck(s_.cluster, fault)) works = works || is_working(m);
  if (!works) ++out_.idle_faults;
  struck_.push_back(fault);
  const std::uint64_t number = struck_.size() - 1;
  if (!works || fault.kind == FaultClass::maintenance) return notice(fault);
  if (fault.kind == FaultClass::straggler) {
    machines_[fault.place].slowdown = fault.slowdown;
    set_pace(false);
    return after(s_.policy.straggler_detection, Kind::noticed, number);
  }
  if (fault.kind == FaultClass::corruption) {  // seen at the next vote, which is none then
    if (!training_.is_running()) return;
    const Instant vote = training_.next_commit(now()) - Duration{1};
    queue_.push(std::max(vote, now()), {Kind::noticed, number});
    return;
  }
  if (!struck_by_) struck_by_ = {fault.cause, now().ns * 1e-9};
  training_.stop(now(), cause_name(fault.cause));
  after(detection(fault), Kind::noticed, number);
}

void FleetRun::strike_supervisor(const Fault&) {
  if (supervisor_lost_) return;
  supervisor_lost_ = true;
  ++supervisor_losses_;
  after(s_.policy.supervisor_restart, Kind::supervisor_back);
  after(s_.policy.orphan_limit, Kind::orphaned, supervisor_losses_);
}

// What the former one was told and had asked for is void; who is lost or new is noticed again.
void FleetRun::supervisor_back() {
  supervisor_lost_ = false;
  const std::vector<FleetEvent> waiting = std::exchange(waiting_, {});
  if (job_) {
    const bool was_running = job_->machine().phase() == JobPhase::running;
    job_->adopt(now());
    const JobPhase phase = job_->machine().phase();
    if (phase == JobPhase::adopting) queue_.push(std::max(now(), job_->deadline()), {Kind::adoption_over, 0});
    if (was_running && phase == JobPhase::running && !training_.is_running() && !struck_by_) set_pace(true);
  }
  for (const FleetEvent& e : waiting) {
    const bool stays = e.kind == Kind::noticed || e.kind == Kind::ranks_up || e.kind == Kind::rank_down;
    if (stays && !job_is_dead_) happen(e);
  }
}

void FleetRun::notice(const Fault& fault) {
  const std::string why = cause_name(fault.cause);
  for (const std::uint32_t m : nodes_struck(s_.cluster, fault)) {
    if (!machines_[m].in) continue;
    const std::optional<RankId> rank = job_ ? job_->rank_on(machines_[m].node) : std::nullopt;
    switch (fault.kind) {
      case FaultClass::process:
        if (rank) job_->rank_down(*rank, why, false, now());
        break;
      case FaultClass::device:
      case FaultClass::node:
      case FaultClass::rack:
      case FaultClass::network_switch: lose_machine(m, fault.out, why); break;
      case FaultClass::network:
        if (rank) job_->rank_failed(*rank, why, now());
        break;
      case FaultClass::corruption:
        if (!rank) break;
        if (!struck_by_) struck_by_ = {fault.cause, now().ns * 1e-9};
        training_.stop(now(), why);
        job_->corrupt(*rank);
        job_->rank_failed(*rank, why, now());
        break;
      case FaultClass::straggler:
      case FaultClass::maintenance: leave_when_drained(m, fault.out, fault.cause); break;
      case FaultClass::supervisor: KINTSUGI_UNREACHABLE();
    }
  }
}

void FleetRun::lose_machine(std::uint32_t machine, double out, const std::string& why) {
  Machine& m = machines_[machine];
  m.in = m.leaving = false;
  m.slowdown = 1;
  machine_of_.erase(m.node);
  if (machine < s_.cluster.provisioned()) after(out, Kind::node_back, machine);
  if (job_) job_->node_lost(m.node, why, now());
  count_ranks();
}

void FleetRun::join(std::uint32_t machine) {
  Machine& m = machines_[machine];
  m = {};
  m.in = true;
  m.node = {++next_node_};
  machine_of_[m.node] = machine;
  const bool provisioned = machine < s_.cluster.provisioned();
  const std::string rack = provisioned ? fmt::format("r{}", s_.cluster.rack_of(machine)) : name_of(machine);
  if (job_) job_->node_ready(m.node, name_of(machine), rack, s_.members_per_node(), now());
}

void FleetRun::leave_when_drained(std::uint32_t machine, double out, std::uint32_t cause) {
  Machine& m = machines_[machine];
  if (m.leaving) return;
  m.leaving = true;
  m.out = out;
  m.cause = cause;
  if (job_)
    job_->drain(m.node, now());
  else
    lose_machine(machine, out, "it was drained");
}

// A recovery is itself a time in which something may fail.
void FleetRun::strike_recovery() {
  for (std::uint32_t i = 0; i < s_.faults.size(); ++i) {
    const double chance = s_.faults[i].during_recovery;
    if (chance <= 0 || recovery_draws_.unit() >= chance) continue;
    const double span = phase_cost_.report(fold_.members) + s_.policy.rebuild + s_.policy.process_detection;
    const double wait = recovery_draws_.unit() * span;
    extra_.push_back(draw_fault(s_, i, now().ns * 1e-9 + wait, recovery_draws_));
    after(wait, Kind::extra_fault, extra_.size() - 1);
  }
}

// Faults that come at a step: when the stretch of training that has just begun reaches it.
void FleetRun::arm_step_faults() {
  for (std::uint32_t i = 0; i < s_.faults.size(); ++i) {
    if (!s_.faults[i].at_step || step_fault_done_[i]) continue;
    const double missing = static_cast<double>(*s_.faults[i].at_step) - training_.steps_at(now());
    const double wait = (training_.commit_after(now(), std::max(1.0, missing)) - now()).seconds();
    if (now().ns * 1e-9 + wait >= s_.duration) continue;
    step_fault_done_[i] = true;
    DrawStream stream(seed_, 2000 + i);
    extra_.push_back(draw_fault(s_, i, now().ns * 1e-9 + wait, stream));
    after(wait, Kind::extra_fault, extra_.size() - 1);
  }
}

void FleetRun::spot_comes() {
  after(draw(*s_.spot.gap, spot_draws_), Kind::spot_comes);
  const double stay = draw(s_.spot.stay, spot_draws_);
  if (spots_ >= s_.spot.at_most) return;
  ++spots_;
  machines_.emplace_back();
  const auto machine = static_cast<std::uint32_t>(machines_.size() - 1);
  join(machine);
  after(std::max(0.0, stay - s_.spot.notice), Kind::spot_leaves, machine);
}

// First it is warned and drained, then it is gone whether or not it was free.
void FleetRun::spot_leaves(std::uint32_t machine) {
  Machine& m = machines_[machine];
  if (!m.in) {
    --spots_;
    return;
  }
  if (!m.leaving) {
    leave_when_drained(machine, 0, 0);
    return after(s_.spot.notice, Kind::spot_leaves, machine);
  }
  --spots_;
  const bool works = is_working(machine);
  if (works) training_.stop(now(), "spot");
  lose_machine(machine, 0, "its time is over");
}

}  // namespace kintsugi::sim
