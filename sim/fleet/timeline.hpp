// All that goes wrong in a run, drawn before it: the same faults strike every policy that is compared.
#pragma once

#include <vector>

#include "sim/scenario/scenario.hpp"

namespace kintsugi::sim {

struct Fault {
  double at = 0;            // seconds
  std::uint32_t cause = 0;  // in Timeline::causes
  FaultClass kind = FaultClass::node;
  std::uint32_t place = 0;  // a provisioned node, a rack or a switch
  double out = 0;           // seconds until it is repaired
  double slowdown = 1;
  bool hang = false;
};

struct Timeline {
  std::vector<std::string> causes;  // of Scenario::faults, in order, then "trace"
  std::vector<Fault> faults;        // by time
};

// Faults that come at a time or at random, and those of the trace. Each source draws from a stream of its own.
Timeline draw_timeline(const Scenario& scenario, std::uint64_t seed);

// One fault of `source` at `at`, with what else is random about it.
Fault draw_fault(const Scenario& scenario, std::uint32_t source, double at, DrawStream& stream);

// The provisioned nodes that a fault takes or touches.
std::vector<std::uint32_t> nodes_struck(const ClusterShape& cluster, const Fault& fault);

}  // namespace kintsugi::sim
