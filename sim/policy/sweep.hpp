// Our goodput over what nobody has measured at this size: the rebuild of communicators, how fast a hang is noticed, and how
// many spares there are. Every cell is a whole run of the fleet.
#pragma once

#include "sim/fleet/fleet.hpp"

namespace kintsugi::sim {

struct SweepCell {
  double rebuild = 0, hang_detection = 0;  // seconds
  double spares = 0;                       // share of the job's nodes
  double goodput = 0, goodput_in_job = 0;
};

constexpr double kRebuilds[] = {1, 10, 60, 300}, kHangs[] = {2, 15, 60}, kSpares[] = {0, 0.01, 0.03};

// Each over `duration` seconds of the scenario.
std::vector<SweepCell> run_sweep(Scenario scenario, std::uint64_t seed, double duration, const Progress& progress = {});

}  // namespace kintsugi::sim
