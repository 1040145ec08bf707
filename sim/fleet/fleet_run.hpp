// One run of a fleet. fleet_run.cpp is its clock, fleet_faults.cpp what strikes it, fleet_effects.cpp what its machine
// asks for.
#pragma once

#include "sim/cost/phase_cost.hpp"
#include "sim/fleet/fleet.hpp"
#include "sim/fleet/job_shell.hpp"
#include "sim/fleet/training.hpp"
#include "sim/world/event_queue.hpp"

namespace kintsugi::sim {

struct FleetEvent {
  enum class Kind : std::uint8_t {
    fault,         // number: in the timeline
    extra_fault,   // number: in extra_
    noticed,       // number: in struck_
    answered,      // number: generation
    prepared,      // number: generation
    ranks_up,      // number: in starts_
    rank_down,     // number: rank
    node_free,     // number: machine; drained, it goes
    first_commit,  // number: generation
    vote,          // number: generation that was intended under
    node_back,     // number: provisioned node
    spot_comes,
    spot_leaves,  // number: spot node
    durable,      // a checkpoint is whole
    supervisor_back,
    adoption_over,  // number: generation; nobody else comes
    orphaned,       // number: supervisor's loss
    restored,       // from a durable checkpoint
    end,
  };
  Kind kind = Kind::end;
  std::uint64_t number = 0;
};

constexpr std::uint64_t number_of(Generation g) {
  return (std::uint64_t{g.epoch} << 32) | g.counter;
}

inline std::uint64_t fingerprint(const FleetEvent& e) {
  return fold(static_cast<std::uint64_t>(e.kind), e.number);
}

class FleetRun {
 public:
  FleetRun(const Scenario& scenario, const Timeline& timeline, std::uint64_t seed);
  FleetOutcome run(const Progress& progress);

 private:
  using Kind = FleetEvent::Kind;

  // A machine of the cluster; spot nodes come after the provisioned ones.
  struct Machine {
    NodeId node;  // while it is in the cluster
    bool in = false;
    bool leaving = false;  // drained; goes when it is free
    double out = 0;        // seconds it stays away then
    double slowdown = 1;
    std::uint32_t cause = 0;
  };

  void start_job();
  void happen(const FleetEvent& e);
  void after(double seconds, Kind kind, std::uint64_t number = 0);
  Instant now() const { return clock_.now(); }
  std::string cause_name(std::uint32_t cause) const;

  // fleet_faults.cpp
  void strike(const Fault& fault);
  void strike_supervisor(const Fault& fault);
  void notice(const Fault& fault);
  void lose_machine(std::uint32_t machine, double out, const std::string& why);
  void join(std::uint32_t machine);
  void leave_when_drained(std::uint32_t machine, double out, std::uint32_t cause);
  void strike_recovery();
  void arm_step_faults();
  void spot_comes();
  void spot_leaves(std::uint32_t machine);
  void supervisor_back();
  double detection(const Fault& fault) const;
  bool is_working(std::uint32_t machine) const;
  std::string name_of(std::uint32_t machine) const;

  // fleet_effects.cpp
  void carry_out(const JobEffect& effect);
  void fence(const job_effect::Fence& fence);
  void prepare(const job_effect::Prepare& prepare);
  void resume();
  void job_stopped(const std::string& why);
  void restored();
  void set_pace(bool resumed);
  void count_ranks();
  double slowest() const;

  const Scenario& s_;
  const Timeline& timeline_;
  const std::uint64_t seed_;
  const Fold fold_;
  const ModelLayout layout_;  // of the folded model
  const StepCost step_cost_;
  const PhaseCost phase_cost_;
  FleetOutcome out_;
  Training training_;
  VirtualClock clock_;
  EventQueue<FleetEvent> queue_;
  DrawStream recovery_draws_, spot_draws_;
  std::unique_ptr<JobShell> job_;
  std::vector<Machine> machines_;
  std::map<NodeId, std::uint32_t> machine_of_;
  std::uint32_t next_node_ = 0;
  std::uint64_t next_fault_ = 0;
  std::vector<Fault> extra_, struck_;
  std::vector<std::vector<PlanRank>> starts_;
  std::vector<bool> step_fault_done_;
  std::uint64_t decisions_ = 0;  // hash
  std::uint64_t lineage_ = 1;
  bool starting_ = true;  // nothing takes time before the first step
  bool supervisor_lost_ = false;
  std::uint64_t supervisor_losses_ = 0;
  std::vector<FleetEvent> waiting_;  // for a supervisor
  std::uint32_t spots_ = 0;
  double durable_steps_ = 0;
  std::optional<std::pair<std::uint32_t, double>> struck_by_;  // cause and time of what stopped training
  bool job_is_dead_ = false;
  bool over_ = false;
};

}  // namespace kintsugi::sim
