// What one incident costs the job's machine and its planner, for clusters and losses of several sizes. Prints JSON: CPU
// time in milliseconds, median and least of some repetitions, and how many members work or hold something else than before.
#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/control/fleet.hpp"
#include "engine/model/presets.hpp"
#include "engine/plan/plan_changes.hpp"

namespace kintsugi::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRepetitions = 5;

// One figure a repetition, by name.
using Figures = std::map<std::string, std::vector<double>>;

template <class Work>
auto timed(Figures& out, const char* name, const Work& work) {
  const double began = cpu_seconds();
  auto result = work();
  out[name].push_back(cpu_seconds() - began);
  return result;
}

// The pure parts again, on the reports of the incident.
void time_parts(Figures& out, const JobMachine& machine, const std::vector<RankReport>& reports, const Plan& before) {
  const JobConfig& job = machine.request().config;
  const ModelLayout layout(job.model);
  const Cut cut = timed(out, "decide_cut", [&] {
    return decide_cut(reports, std::nullopt, static_cast<std::uint32_t>(layout.shards().size()));
  });
  PlanRequest request{{1}, {1}, machine.generation(), {}};
  for (const RankReport& r : reports) request.members.push_back({r.rank, r.node, RackId{1 + r.node.value / 16}});
  request.copies = timed(out, "reachable_copies", [&] { return reachable_copies(cut, reports, request.members); });
  request.in_force = &before;
  const Plan plan = timed(out, "make_plan", [&] { return make_plan(request, job, layout).value(); });
  request.in_force = nullptr;
  timed(out, "make_plan_from_nothing", [&] { return make_plan(request, job, layout).value(); });
  const StepUnderWay interrupted{before, {0}, {}};
  timed(out, "plan_transition", [&] { return plan_transition(plan, cut, reports, interrupted); });
  timed(out, "digest", [&] { return plan.digest(); });
}

Json incident(const FleetShape& shape, std::uint32_t losses, const JobConfig& job) {
  std::vector<NodeId> lost;  // spread over the cluster
  for (std::uint32_t i = 0; i < losses; ++i) lost.push_back({1 + shape.members / 3 + i * (shape.members / 2 / losses)});
  Figures machine, parts;
  Json out{{"members", shape.members}, {"lost", losses}, {"lanes_of_member", shape.lanes_of_member}};
  for (int i = 0; i < kRepetitions; ++i) {
    Fleet fleet(shape, job);
    fleet.start();
    const Plan before = *fleet.machine().plan();
    const Fleet::Cost cost = fleet.lose(lost);
    machine["all"].push_back(cost.total);
    machine["losses"].push_back(cost.lost);
    machine["reports"].push_back(cost.reports);
    machine["decision"].push_back(cost.decide);
    machine["prepared"].push_back(cost.prepared);
    time_parts(parts, fleet.machine(), fleet.reports(), before);
    if (i > 0) continue;
    const Plan& after = *fleet.machine().plan();
    const PlanChanges changes = changes_between(before, after);
    out["shards"] = after.shards.size();
    out["messages_in_a_member"] = static_cast<double>(cost.messages_in) / shape.members;
    out["messages_out_a_member"] = static_cast<double>(cost.messages_out) / shape.members;
    out["members_with_other_cells"] = changes.workers.size();
    out["members_with_other_shards"] = changes.holders.size();
    out["shards_with_other_holders"] = changes.shards;
    out["reason"] = after.reason;
  }
  const auto milliseconds_of = [](Figures& figures) {
    Json all;
    for (auto& [name, seconds] : figures) {
      std::sort(seconds.begin(), seconds.end());
      all[name] = {{"median", seconds[seconds.size() / 2] * 1e3}, {"least", seconds.front() * 1e3}};
    }
    return all;
  };
  out["machine_ms"] = milliseconds_of(machine);
  out["parts_ms"] = milliseconds_of(parts);
  return out;
}

// No arguments: all sizes.
int run(const std::vector<std::uint32_t>& arguments) {
  Json all = Json::array();
  const auto add = [&](FleetShape shape, std::uint32_t losses) {
    all.push_back(incident(shape, losses, fleet_job(shape)));
  };
  if (arguments.size() == 3) {
    add({.members = arguments[0], .lanes_of_member = arguments[2]}, arguments[1]);
  } else {
    for (const std::uint32_t members : {256U, 1'024U, 4'096U, 16'384U}) add({.members = members}, 1);
    for (const std::uint32_t losses : {8U, 64U, 512U}) add({.members = 16'384}, losses);
    for (const std::uint32_t losses : {1U, 64U}) add({.members = 16'384, .lanes_of_member = 4}, losses);
    JobConfig large = fleet_job({.members = 16'384});
    large.model = *find_preset("llama-3-405b");
    all.push_back(incident({.members = 16'384}, 1, large));
  }
  std::cout << all.dump(1) << '\n';
  return 0;
}

}  // namespace
}  // namespace kintsugi::bench

// Or: MEMBERS LOSSES LANES_OF_MEMBER.
int main(int argc, char** argv) {
  std::vector<std::uint32_t> arguments;
  for (int i = 1; i < argc; ++i) arguments.push_back(static_cast<std::uint32_t>(std::stoul(argv[i])));
  return kintsugi::bench::run(arguments);
}
