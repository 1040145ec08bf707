// Other ways to meet the same faults, to be compared with ours. They are models by the clock alone: no machine of theirs
// runs. Each is told by its figures, which a scenario sets before any run.
//
// A fault strikes a policy's job where it strikes one of the first `nodes` provisioned nodes: who replaced whom is not
// followed. What takes a node away needs a spare, or the job waits for the first repair.
#pragma once

#include "sim/fleet/outcome.hpp"
#include "sim/fleet/timeline.hpp"

namespace kintsugi::sim {

// All stop and start again from the last checkpoint. Every `interval` seconds of training all wait `write` for one. A fault
// costs the work since then, `timeout` until it is noticed and `restart` until the first new step; one that strikes
// meanwhile makes that wait begin anew. With `productive_clock` faults come in time that is trained, so none strikes a wait.
// `step_seconds`: of a step at full strength.
Outcome run_restart(const Scenario& scenario, const Timeline& timeline, const std::string& name,
                    const RestartFigures& figures, double step_seconds);

// A data-parallel group (one member of each stage) is the unit: when it loses one, all wait `stall`, and go on without the
// group for `rejoin`, with less work done. (Fault tolerant HSDP, arXiv 2602.00277, states 3 min of stall at O(100,000)
// GPUs.) The supervisor's loss costs it nothing.
Outcome run_replica_groups(const Scenario& scenario, const Timeline& timeline, const GroupFigures& figures,
                           double step_seconds);

// All that a scenario compares with ours.
std::vector<Outcome> run_other_policies(const Scenario& scenario, const Timeline& timeline, double step_seconds);

// Effective training time of stop and restart, to first order: (1 - N r (u + dt / 2)) / (1 + w / dt), with N r failures a
// second, u seconds until training goes on, checkpoints every dt that cost w ("Revisiting Reliability in Large-Scale Machine
// Learning Research Clusters", arXiv 2410.21680). It applies where N r (u + dt / 2) is small.
double expected_ettr(double failures_per_second, double restart, double interval, double write);

}  // namespace kintsugi::sim
