#include "sim/swarm/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kintsugi::sim::protocol {

namespace {

constexpr std::uint64_t kShapeDraws = 1, kFaultDraws = 2;

Shape draw_shape(std::uint64_t seed) {
  Draws draws(seed, kShapeDraws);
  Shape shape;
  shape.seed = seed;
  shape.slots.clear();
  const std::uint64_t nodes = draws.chance(10) ? 1 : draws.between(2, 4);
  std::uint32_t slots = 0;
  for (std::uint64_t n = 0; n < nodes; ++n) {
    shape.slots.push_back(static_cast<std::uint32_t>(draws.between(1, 3)));
    slots += shape.slots.back();
  }
  if (draws.chance(30)) shape.racks = static_cast<std::uint32_t>(draws.between(1, 3));
  shape.blocks = static_cast<std::int64_t>(draws.between(1, 3));
  shape.lanes = static_cast<std::int64_t>(draws.between(3, 8));
  shape.per_lane = draws.chance(30) ? 2 : 1;
  shape.stages = static_cast<std::int64_t>(draws.between(1, static_cast<std::uint64_t>(shape.blocks)));
  shape.tied = draws.chance(50);
  shape.schedule = draws.chance(50) ? ScheduleKind::one_f_one_b : ScheduleKind::gpipe;
  shape.replicas = draws.chance(70) ? 2 : static_cast<std::int64_t>(draws.between(1, 3));
  shape.steps = static_cast<std::int64_t>(draws.between(4, 12));
  const auto cells = static_cast<std::uint64_t>(shape.lanes * shape.stages);
  if (draws.chance(50))
    shape.ranks = static_cast<std::uint32_t>(draws.between(1, std::min<std::uint64_t>(slots, cells)));
  shape.orphan_limit = draws.chance(80) ? 30 : 3;
  return shape;
}

// Phases in which a fault strikes a change that is under way.
constexpr JobPhase kStruck[] = {JobPhase::starting, JobPhase::fencing,  JobPhase::preparing, JobPhase::preparing,
                                JobPhase::running,  JobPhase::adopting, JobPhase::paused};

Fault draw_fault(Draws& draws, const std::vector<FaultKind>& kinds, Duration busy) {
  Fault fault;
  fault.kind = kinds[draws.below(kinds.size())];
  fault.target = draws.below(1 << 20);
  const std::uint64_t when = draws.below(10);
  fault.at = Instant{} + draws.between(Duration{}, busy);
  if (when < 4) {
    fault.phase = kStruck[draws.below(std::size(kStruck))];
    fault.at = Instant{} + draws.between(Duration{}, busy * 2);
    fault.after = draws.between(Duration{}, draws.chance(50) ? milliseconds(3) : milliseconds(40));
  } else if (when < 6) {
    fault.event = draws.between(1, 6000);
  }
  fault.span = draws.chance(50) ? draws.between(milliseconds(1), milliseconds(400))
                                : draws.between(milliseconds(400), milliseconds(6'000));
  return fault;
}

}  // namespace

SwarmScenario draw_scenario(std::uint64_t seed) {
  SwarmScenario scenario;
  scenario.shape = draw_shape(seed);
  Draws draws(seed, kFaultDraws);
  // Few kinds at a time find more than all at once.
  std::vector<FaultKind> kinds;
  const std::uint64_t count = draws.between(1, 6);
  for (std::uint64_t k = 0; k < count; ++k) kinds.push_back(static_cast<FaultKind>(draws.below(kFaultKinds)));
  if (draws.chance(50)) kinds.push_back(FaultKind::kill_rank);
  const Duration busy = milliseconds(60 + 45 * scenario.shape.steps);
  std::uint64_t faults = draws.chance(5) ? 0 : draws.between(1, draws.chance(80) ? 5 : 10);
  if (draws.chance(10)) {
    faults = draws.between(8, 20);
    for (std::uint8_t k = 0; k < kFaultKinds; ++k) kinds.push_back(static_cast<FaultKind>(k));
  }
  for (std::uint64_t f = 0; f < faults; ++f) scenario.faults.push_back(draw_fault(draws, kinds, busy));
  scenario.heal = Instant{} + milliseconds(2'000) + draws.between(Duration{}, seconds(12));
  return scenario;
}

namespace {

bool destroys(FaultKind kind) {
  switch (kind) {
    case FaultKind::kill_node:
    case FaultKind::lose_node:
    case FaultKind::stop_node:
    case FaultKind::cut_to_node:
    case FaultKind::cut_from_node:
    case FaultKind::delay_node:
    case FaultKind::drain:
    case FaultKind::evict:
    case FaultKind::stop_supervisor:
    case FaultKind::kill_supervisor: return true;  // its nodes may hold out less long than it is away
    default: return false;
  }
}

// Whether what was done explains that the job ended early, for the reason it gives.
bool is_explained(const SwarmScenario& scenario, const Outcome& outcome) {
  const std::string& why = outcome.message;
  const auto says = [&](const char* text) { return why.find(text) != std::string::npos; };
  const bool slots_lost =
      std::any_of(scenario.faults.begin(), scenario.faults.end(), [](const Fault& f) { return destroys(f.kind); });
  if (says("are lost")) return true;  // the watch has judged it
  if (says("no free slot") || says("not enough slots") || says("no slot to start one in")) return slots_lost;
  // What is silent while the job stops is found dead a little later than the job waits for it.
  if (says("did not end in time")) return slots_lost;
  if (says("no hello in time")) {
    return std::any_of(scenario.faults.begin(), scenario.faults.end(),
                       [](const Fault& f) { return f.kind == FaultKind::slow_starts; });
  }
  if (says("were replaced within")) return scenario.faults.size() >= 3;
  if (says("generation changes without a step")) return scenario.faults.size() >= 9;
  return false;
}

}  // namespace

Verdict run_scenario(const SwarmScenario& scenario, const Cluster::Trace& trace) {
  Cluster cluster(scenario.shape, scenario.faults, trace);
  Verdict verdict{{}, cluster.run(scenario.heal)};
  const RunReport& report = verdict.report;
  verdict.violation = report.violation;
  if (verdict.violation || !report.outcome) return verdict;
  if (report.outcome->exit_code == 0) {
    if (report.step.value < static_cast<std::uint64_t>(scenario.shape.steps))
      verdict.violation = "the job is done before its last step";
  } else if (!is_explained(scenario, *report.outcome)) {
    verdict.violation = "the job ended early, which its faults do not explain: " + report.outcome->message;
  }
  return verdict;
}

SwarmScenario shrink(SwarmScenario scenario, std::uint32_t budget) {
  for (std::size_t chunk = std::max<std::size_t>(1, scenario.faults.size() / 2); chunk > 0;) {
    bool smaller = false;
    for (std::size_t first = 0; first < scenario.faults.size() && budget > 0;) {
      SwarmScenario less = scenario;
      const auto from = less.faults.begin() + static_cast<std::ptrdiff_t>(first);
      less.faults.erase(from, from + static_cast<std::ptrdiff_t>(std::min(chunk, less.faults.size() - first)));
      --budget;
      if (run_scenario(less).violation) {
        scenario = std::move(less);
        smaller = true;
      } else {
        first += chunk;
      }
    }
    if (!smaller) chunk /= 2;
    if (budget == 0) break;
  }
  return scenario;
}

std::string to_string(const SwarmScenario& s) {
  std::string text = fmt::format(
      "seed {}: slots {}, racks {}, ranks {}, blocks {}, lanes {} of {}, stages {}, {} copies, {} steps, {}{}, orphans "
      "wait {} s; everything works after {:.3f} s\n",
      s.shape.seed, fmt::join(s.shape.slots, "+"), s.shape.racks, s.shape.ranks, s.shape.blocks, s.shape.lanes,
      s.shape.per_lane, s.shape.stages, s.shape.replicas, s.shape.steps, s.shape.tied ? "tied" : "untied",
      s.shape.schedule == ScheduleKind::gpipe ? ", GPipe" : ", 1F1B", s.shape.orphan_limit,
      Duration{s.heal.ns}.seconds());
  for (const Fault& fault : s.faults) text += "  " + to_string(fault) + "\n";
  return text;
}

}  // namespace kintsugi::sim::protocol
