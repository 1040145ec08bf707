#include "sim/fleet/fleet.hpp"

#include "sim/fleet/fleet_run.hpp"

namespace kintsugi::sim {

FleetOutcome run_fleet(const Scenario& scenario, const Timeline& timeline, std::uint64_t seed,
                       const Progress& progress) {
  return FleetRun(scenario, timeline, seed).run(progress);
}

}  // namespace kintsugi::sim
