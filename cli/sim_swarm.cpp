#include "cli/sim_swarm.hpp"

#include <fmt/format.h>

#include "base/clock.hpp"
#include "cli/command.hpp"
#include "sim/swarm/swarm.hpp"

namespace kintsugi::cli {

int simulate_swarm(std::uint64_t runs, std::uint64_t seed) {
  const SteadyClock clock;
  sim::protocol::SwarmOptions options;
  options.runs = runs;
  options.seed = seed;
  options.clock = &clock;
  const Result<sim::protocol::SwarmOutcome> outcome = sim::protocol::run_swarm(options);
  if (!outcome) return fail(outcome.error());
  fmt::print("{}", sim::protocol::to_string(*outcome));
  if (outcome->failures.empty()) return kDone;
  return fail({ErrorAction::restart_process,
               fmt::format("a rule was broken: {}; `{}` makes it happen again, with the same build",
                           outcome->failures.front().what, outcome->failures.front().replay)});
}

}  // namespace kintsugi::cli
