// Event hashes that must stay: a change of them is a change of what the simulator or the control code decides. Whoever
// changes that on purpose puts the new ones here.
#pragma once

#include "sim/fleet/fleet.hpp"
#include "tests/sim/small_scenario.hpp"

namespace kintsugi::sim::testing {

constexpr std::uint64_t kKeptHash = 12778571798689502697u;  // of everything(), seed 1

inline Scenario everything() {
  return small(
      "faults:\n"
      "  - { class: device, every: 3h }\n"
      "  - { class: process, every: 5h, distribution: weibull, shape: 0.7 }\n"
      "  - { class: node, every: 9h, hang: true, burst: 2, within: 30s }\n"
      "  - { class: rack, at: 20h, target: 3 }\n"
      "  - { class: network, every: 5h, distribution: gamma, shape: 2 }\n"
      "  - { class: straggler, every: 9h, slowdown: 1.5 }\n"
      "  - { class: maintenance, every: 6h }\n"
      "  - { class: supervisor, every: 6h }\n"
      "  - { class: corruption, at: 30h }\n"
      "  - { class: process, at_step: 5000 }\n"
      "  - { class: node, during_recovery: 0.1 }\n"
      "repair: { device: 5h, node: { distribution: log_normal, mean: 6h, sigma: 1 }, maintenance: 1h, straggler: 1h }\n"
      "lemons: { count: 2, share: 0.3 }\n"
      "policy: { rebuild: 5s, replicas: 3 }\n");
}

inline FleetOutcome run(const Scenario& scenario, std::uint64_t seed = 1) {
  return run_fleet(scenario, draw_timeline(scenario, seed), seed);
}

}  // namespace kintsugi::sim::testing
