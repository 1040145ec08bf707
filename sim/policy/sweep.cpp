#include "sim/policy/sweep.hpp"

namespace kintsugi::sim {

std::vector<SweepCell> run_sweep(Scenario scenario, std::uint64_t seed, double duration, const Progress& progress) {
  std::vector<SweepCell> cells;
  constexpr double kCells = std::size(kRebuilds) * std::size(kHangs) * std::size(kSpares);
  scenario.duration = duration;
  for (const double spares : kSpares) {
    scenario.cluster.spares = static_cast<std::uint32_t>(spares * scenario.cluster.nodes + 0.5);
    const Timeline timeline = draw_timeline(scenario, seed);
    for (const double hang : kHangs) {
      for (const double rebuild : kRebuilds) {
        scenario.policy.hang_detection = hang;
        scenario.policy.rebuild = rebuild;
        const double done = static_cast<double>(cells.size());
        const FleetOutcome out = run_fleet(scenario, timeline, seed, [&](double share) {
          if (progress) progress((done + share) / kCells);
        });
        cells.push_back({rebuild, hang, spares, out.goodput(), out.goodput_in_job()});
      }
    }
  }
  return cells;
}

}  // namespace kintsugi::sim
