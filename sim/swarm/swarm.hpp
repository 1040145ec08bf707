// Many runs, each from a seed of its own, and what became of them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sim/swarm/scenario.hpp"

namespace kintsugi::sim::protocol {

struct SwarmOptions {
  std::uint64_t runs = 0;
  std::uint64_t seed = 1;            // of the first; the others follow
  std::uint64_t repeat_one_in = 20;  // such a run is made twice, and must be the same, event for event; 0: none
  std::uint32_t most_failures = 1;   // then the swarm ends
  bool shrinks = true;               // a failure is told with the faults that it takes
  const Clock* clock = nullptr;      // for the rate; may be null
  std::function<void(std::uint64_t done)> on_progress = {};  // after every 1,000 runs; may be empty
};

struct SwarmFailure {
  std::uint64_t seed = 0;
  std::string what;
  std::string replay;   // one line that makes it happen again
  SwarmScenario small;  // with the faults that it takes
};

struct SwarmOutcome {
  std::uint64_t runs = 0, events = 0, faults = 0, repeated = 0;
  std::uint64_t finished = 0;                       // with the digest of the run without faults
  std::map<std::string, std::uint64_t> early_ends;  // by reason
  std::vector<SwarmFailure> failures;
  std::vector<std::string> unreached;  // probes
  double seconds = 0;                  // 0: no clock
};

// Error{tell_user}: no runs are asked for.
Result<SwarmOutcome> run_swarm(const SwarmOptions& options);

// For people.
std::string to_string(const SwarmOutcome& outcome);

}  // namespace kintsugi::sim::protocol
