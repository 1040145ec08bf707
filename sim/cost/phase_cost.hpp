// What the phases of a generation change take (DESIGN 7), each with its law. n: members of the plan, d: depth of the
// control tree, log of n to the base of its fan-out.
//
//   fence    d hops down, and the operation in progress runs out              O(log n)
//   report   d hops up, and inventories through the root's link               O(log n) + O(n) bytes
//   plan     the supervisor's own work                                        O(n), measured (kPlanPerMember)
//   prepare  d hops, then the most that any member sends or receives of state and weights, and the rebuild of
//            communicators, which the scenario gives                          O(log n) + moved bytes + rebuild
//   switch   d hops down                                                      O(log n)
//   resume   the first wave through the pipeline is the step's own bubble     in the step
#pragma once

#include "engine/control/recovery.hpp"
#include "sim/cost/step_cost.hpp"

namespace kintsugi::sim {

constexpr double kFanOut = 32;            // children of a node of the control tree: an assumption
constexpr double kHandling = 50e-6;       // seconds a hop beside its latency: TLS, a frame, an actor's mailbox; assumed
constexpr double kInventoryBytes = 512;   // of one member: a few shards, a record; by the schema's encoding
constexpr double kPlanPerMember = 10e-6;  // seconds of one core; measured for the incremental planner at 16,384 members
constexpr double kStateBytesPerElement = 12;  // float32 weight and two moments

struct PhaseTimes {
  double fence = 0, report = 0, plan = 0, prepare = 0, resume = 0;
  double total() const { return fence + report + plan + prepare + resume; }
};

class PhaseCost {
 public:
  PhaseCost(const Scenario& scenario, const StepCost& step) : s_(scenario), step_(step) {}

  double hop() const { return s_.cluster.system.latency + kHandling; }
  // Of a message to everybody, or of an answer from everybody.
  double wave(std::size_t members) const;
  double fence(std::size_t members, const Plan* in_force) const;
  double report(std::size_t members) const;
  double plan(std::size_t members) const { return kPlanPerMember * static_cast<double>(members); }
  // `scale`: real elements of an element of `layout`, which may be a folded one. `newcomers` need a stage's weights too.
  double prepare(const Plan& plan, const Transition* transition, const ModelLayout& layout, double scale,
                 bool newcomers) const;

 private:
  const Scenario& s_;
  const StepCost& step_;
};

}  // namespace kintsugi::sim
