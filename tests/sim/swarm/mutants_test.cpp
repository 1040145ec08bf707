// Each wrong decision is found by a swarm of at most 2,000 runs: the checks bite.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/mutant.hpp"
#include "sim/swarm/swarm.hpp"

namespace kintsugi::sim::protocol {
namespace {

constexpr std::uint64_t kRuns = 2'000;
constexpr int kFound = 7, kNotFound = 8;

[[noreturn]] void hunt(Mutant mutant) {
  active_mutant() = mutant;
  SwarmOptions options;
  options.runs = kRuns;
  options.seed = 1;
  options.shrinks = false;
  const Result<SwarmOutcome> outcome = run_swarm(options);
  if (!outcome || outcome->failures.empty()) std::_Exit(kNotFound);
  const SwarmFailure& failure = outcome->failures.front();
  std::fprintf(stderr, "found by run %llu: %s\n", static_cast<unsigned long long>(outcome->runs), failure.what.c_str());
  std::_Exit(kFound);
}

// An assertion of production is as good as a rule of the watch.
bool is_found(int status) {
  return (WIFEXITED(status) && WEXITSTATUS(status) == kFound) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

class Mutants : public ::testing::TestWithParam<std::uint8_t> {};

TEST_P(Mutants, is_found_by_a_small_swarm) {
  EXPECT_EXIT(hunt(static_cast<Mutant>(GetParam())), is_found, "");
}

INSTANTIATE_TEST_SUITE_P(Each, Mutants, ::testing::Range(std::uint8_t{1}, kMutants));

TEST(MutantsDeathTest, without_one_the_same_swarm_finds_nothing) {
  EXPECT_EXIT(hunt(Mutant::none), ::testing::ExitedWithCode(kNotFound), "");
}

}  // namespace
}  // namespace kintsugi::sim::protocol
