// What a run of the fleet tells people: one JSON object, and a page with pictures that needs nothing beside itself.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "sim/cost/step_cost.hpp"
#include "sim/fleet/fold.hpp"
#include "sim/policy/policy.hpp"
#include "sim/policy/sweep.hpp"

namespace kintsugi::sim {

struct FleetReport {
  const Scenario* scenario = nullptr;
  std::uint64_t seed = 0;
  std::string version;
  FleetOutcome ours;
  std::vector<Outcome> others;
  std::vector<SweepCell> sweep;  // empty: not made
  double sweep_duration = 0;     // seconds
};

// Runs ours and the others under the same faults.
FleetReport make_report(const Scenario& scenario, std::uint64_t seed, const Progress& progress = {});

// `simulated`: true, `scenario`, `seed`, `parameters`, `goodput` and `goodput_in_job` (shares), `event_hash` (hex), `tokens`,
// `tokens_per_second`, `wall_s`, `steps`, `step_s`, `lost_s` by cause, `recovery_s` (percentiles), `incidents` (as those of
// `kintsugi run --report`), `machine` (steps, plans, folds), `policies`, `table`, `version`.
nlohmann::ordered_json to_json(const FleetReport& report);
// Self-contained HTML: ranks in service over time, loss by cause, recovery times, policies.
std::string to_html(const FleetReport& report);

// "99.44 %"
std::string percent(double share);
// The p-th of `values`, 0 <= p <= 1, nearest rank; 0 of none.
double percentile(std::vector<double> values, double p);

}  // namespace kintsugi::sim
