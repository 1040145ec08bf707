// A job on a large cluster for weeks, in seconds: steady steps are folded, incidents are played phase by phase, and every
// decision in them is made by the production job machine and planner on a real plan.
#pragma once

#include <functional>
#include <memory>

#include "sim/fleet/outcome.hpp"
#include "sim/fleet/timeline.hpp"

namespace kintsugi::sim {

// From 0 to 1, of the time that is simulated.
using Progress = std::function<void(double)>;

FleetOutcome run_fleet(const Scenario& scenario, const Timeline& timeline, std::uint64_t seed,
                       const Progress& progress = {});

}  // namespace kintsugi::sim
