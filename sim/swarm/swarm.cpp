#include "sim/swarm/swarm.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <csignal>
#include <cstring>

#include "base/probe.hpp"

namespace kintsugi::sim::protocol {

namespace {

// The reason without numbers and names, so that like ends are counted together.
std::string kind_of_end(const std::string& why) {
  if (why.find("are lost") != std::string::npos) return "every copy of some shards is lost";
  for (const char* kind : {"no free slot", "not enough slots", "no slot to start one in", "did not end in time",
                           "no hello in time", "were replaced within", "generation changes without a step"}) {
    if (why.find(kind) != std::string::npos) return kind;
  }
  return why;
}

// An assertion of production ends the process: this is the line that makes it happen again.
class LastWords {
 public:
  LastWords() : former_(std::signal(SIGABRT, say)) {}
  ~LastWords() { static_cast<void>(std::signal(SIGABRT, former_)); }
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
  static void set(const std::string& line) { std::strncpy(words, line.c_str(), sizeof words - 1); }

 private:
  static void say(int) {
    static_cast<void>(::write(STDERR_FILENO, words, std::strlen(words)) == 0);
    static_cast<void>(std::signal(SIGABRT, SIG_DFL));
    static_cast<void>(std::raise(SIGABRT));
  }
  static inline char words[128] = "";
  void (*const former_)(int);
};

std::string replay_line(std::uint64_t seed) {
  return fmt::format("kintsugi sim --swarm 1 --seed {}", seed);
}

SwarmFailure describe(std::uint64_t seed, const SwarmScenario& scenario, const std::string& what, bool shrinks) {
  SwarmFailure failure{seed, what, replay_line(seed), scenario};
  if (shrinks && run_scenario(scenario).violation) failure.small = shrink(scenario);
  return failure;
}

}  // namespace

Result<SwarmOutcome> run_swarm(const SwarmOptions& options) {
  if (options.runs == 0) return Error{ErrorAction::tell_user, "a swarm of no runs shows nothing: ask for at least one"};
  const Instant began = options.clock != nullptr ? options.clock->now() : Instant{};
  SwarmOutcome outcome;
  const LastWords last_words;
  for (std::uint64_t run = 0; run < options.runs; ++run) {
    const std::uint64_t seed = options.seed + run;
    LastWords::set("replay: " + replay_line(seed) + "\n");
    const SwarmScenario scenario = draw_scenario(seed);
    const Verdict verdict = run_scenario(scenario);
    ++outcome.runs;
    outcome.events += verdict.report.events;
    outcome.faults += verdict.report.faults;
    std::optional<std::string> what = verdict.violation;
    if (!what && options.repeat_one_in != 0 && seed % options.repeat_one_in == 0) {
      ++outcome.repeated;
      if (run_scenario(scenario).report.hash != verdict.report.hash)
        what = "the same seed ran differently the second time";
    }
    if (what) {
      outcome.failures.push_back(describe(seed, scenario, *what, options.shrinks));
      if (outcome.failures.size() >= options.most_failures) break;
    } else if (verdict.report.outcome->exit_code == 0) {
      ++outcome.finished;
    } else {
      ++outcome.early_ends[kind_of_end(verdict.report.outcome->message)];
    }
    if (options.on_progress && outcome.runs % 1'000 == 0) options.on_progress(outcome.runs);
  }
  for (const auto& [name, count] : Probe::counts()) {
    if (count == 0) outcome.unreached.push_back(name);
  }
  if (options.clock != nullptr) outcome.seconds = (options.clock->now() - began).seconds();
  return outcome;
}

std::string to_string(const SwarmOutcome& o) {
  std::string text = fmt::format(
      "{} runs, {} events, {} faults struck; {} jobs finished, each with the digest of the run "
      "without faults; {} runs were made twice\n",
      o.runs, o.events, o.faults, o.finished, o.repeated);
  for (const auto& [why, count] : o.early_ends) text += fmt::format("  {} ended early: {}\n", count, why);
  if (o.seconds > 0) {
    text += fmt::format("  {:.1f} s, {:.0f} runs a minute, {:.0f} events a second\n", o.seconds,
                        static_cast<double>(o.runs) / o.seconds * 60, static_cast<double>(o.events) / o.seconds);
  }
  for (const std::string& name : o.unreached) text += "  never reached: " + name + "\n";
  for (const SwarmFailure& f : o.failures) {
    text += fmt::format("FAILED seed {}: {}\n  replay: {}\n  with the faults that it takes:\n{}", f.seed, f.what,
                        f.replay, to_string(f.small));
  }
  return text;
}

}  // namespace kintsugi::sim::protocol
