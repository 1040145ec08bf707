// Runs a swarm by hand: swarm_runner RUNS FIRST_SEED [trace | shrunk]. `trace` tells what happens in one run, `shrunk` the
// same with only the faults that make it fail.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "sim/swarm/swarm.hpp"

namespace {

int trace(std::uint64_t seed, bool shrunk) {
  using namespace kintsugi::sim::protocol;  // NOLINT(google-build-using-namespace)
  SwarmScenario scenario = draw_scenario(seed);
  if (shrunk) scenario = shrink(scenario);
  std::printf("%s", to_string(scenario).c_str());
  const Verdict verdict = run_scenario(scenario, [](const std::string& line) { std::printf("%s\n", line.c_str()); });
  for (const std::string& note : verdict.report.notes) std::printf("note: %s\n", note.c_str());
  if (verdict.report.outcome) {
    std::printf("exit code %d %s\n", verdict.report.outcome->exit_code, verdict.report.outcome->message.c_str());
  }
  std::printf("%s, %llu events, %.3f s\n", verdict.violation ? verdict.violation->c_str() : "all rules kept",
              static_cast<unsigned long long>(verdict.report.events), verdict.report.took.seconds());
  return verdict.violation ? 1 : 0;
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) {
    std::fprintf(stderr, "usage: swarm_runner RUNS FIRST_SEED [trace | shrunk]\n");
    return 2;
  }
  const std::uint64_t seed = std::strtoull(words[2], nullptr, 10);
  if (count > 3) return trace(seed, std::string(words[3]) == "shrunk");
  const kintsugi::SteadyClock clock;
  kintsugi::sim::protocol::SwarmOptions options;
  options.runs = std::strtoull(words[1], nullptr, 10);
  options.seed = seed;
  options.clock = &clock;
  options.most_failures = 5;
  const auto outcome = kintsugi::sim::protocol::run_swarm(options);
  if (!outcome) return 2;
  std::printf("%s", kintsugi::sim::protocol::to_string(*outcome).c_str());
  return outcome->failures.empty() ? 0 : 1;
}
