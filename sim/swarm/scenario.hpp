// One run of a swarm, drawn from its seed: a shape, faults, and when everything works again.
#pragma once

#include "sim/protocol/cluster.hpp"

namespace kintsugi::sim::protocol {

struct SwarmScenario {
  Shape shape;
  std::vector<Fault> faults;
  Instant heal;
};

SwarmScenario draw_scenario(std::uint64_t seed);

struct Verdict {
  std::optional<std::string> violation;
  RunReport report;
};

// Runs it and judges its end, too: a job may only fail where its faults explain it.
Verdict run_scenario(const SwarmScenario& scenario, const Cluster::Trace& trace = nullptr);

// Leaves out faults while `scenario` still fails, until none can be spared. At most `budget` runs.
SwarmScenario shrink(SwarmScenario scenario, std::uint32_t budget = 200);

// For people: a line of the shape, a line a fault.
std::string to_string(const SwarmScenario& scenario);

}  // namespace kintsugi::sim::protocol
