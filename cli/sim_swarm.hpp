// `kintsugi sim --swarm`: many small clusters, every message of them an event, with faults drawn from a seed.
#pragma once

#include <cstdint>

namespace kintsugi::cli {

// Runs `runs` of them from `seed` on and prints what became of them. Returns the exit code: 1 when a rule was broken.
int simulate_swarm(std::uint64_t runs, std::uint64_t seed);

}  // namespace kintsugi::cli
