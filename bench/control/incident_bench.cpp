// What one incident costs the job's machine and its planner, for clusters and losses of several sizes. Prints JSON: CPU
// seconds of one thread, and how many members work or hold something else than before.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/control/fleet.hpp"
#include "engine/plan/plan_changes.hpp"

namespace kintsugi::bench {
namespace {

using Json = nlohmann::ordered_json;

template <class Work>
auto timed(Json& out, const char* name, const Work& work) {
  const double began = cpu_seconds();
  auto result = work();
  out[name] = (cpu_seconds() - began) * 1e3;
  return result;
}

// The pure parts again, on the reports of the incident.
Json parts(const JobMachine& machine, const std::vector<RankReport>& reports, const Plan& before) {
  Json out;
  const JobConfig& job = machine.request().config;
  const ModelLayout layout = timed(out, "layout_ms", [&] { return ModelLayout(job.model); });
  const Cut cut = timed(out, "decide_cut_ms", [&] {
    return decide_cut(reports, std::nullopt, static_cast<std::uint32_t>(layout.shards().size()));
  });
  PlanRequest request{{1}, {1}, machine.generation(), {}};
  for (const RankReport& r : reports) request.members.push_back({r.rank, r.node, std::to_string(r.node.value / 16)});
  request.copies = timed(out, "reachable_copies_ms", [&] { return reachable_copies(cut, reports, request.members); });
  request.in_force = &before;
  const Plan plan = timed(out, "make_plan_ms", [&] { return make_plan(request, job, layout).value(); });
  request.in_force = nullptr;
  timed(out, "make_plan_from_nothing_ms", [&] { return make_plan(request, job, layout).value(); });
  const StepUnderWay interrupted{before, {0}, {}};
  timed(out, "plan_transition_ms", [&] { return plan_transition(plan, cut, reports, interrupted); });
  timed(out, "digest_ms", [&] { return plan.digest(); });
  return out;
}

Json incident(const FleetShape& shape, std::uint32_t losses, const JobConfig& job) {
  Fleet fleet(shape, job);
  fleet.start();
  const Plan before = *fleet.machine().plan();
  std::vector<NodeId> lost;  // spread over the cluster
  for (std::uint32_t i = 0; i < losses; ++i) lost.push_back({1 + shape.members / 3 + i * (shape.members / 2 / losses)});
  const Fleet::Cost cost = fleet.lose(lost);
  const Plan& after = *fleet.machine().plan();
  const PlanChanges changes = changes_between(before, after);
  const double members = shape.members;
  return {{"members", shape.members},
          {"lost", losses},
          {"lanes_of_member", shape.lanes_of_member},
          {"shards", after.shards.size()},
          {"total_ms", cost.total * 1e3},
          {"loss_ms", cost.lost * 1e3},
          {"reports_ms", cost.reports * 1e3},
          {"decide_ms", cost.decide * 1e3},
          {"prepared_ms", cost.prepared * 1e3},
          {"messages_in_a_member", static_cast<double>(cost.messages_in) / members},
          {"messages_out_a_member", static_cast<double>(cost.messages_out) / members},
          {"members_with_other_cells", changes.workers.size()},
          {"members_with_other_shards", changes.holders.size()},
          {"shards_with_other_holders", changes.shards},
          {"parts", parts(fleet.machine(), fleet.reports(), before)},
          {"reason", after.reason}};
}

int run() {
  Json all = Json::array();
  const auto add = [&](FleetShape shape, std::uint32_t losses) {
    all.push_back(incident(shape, losses, fleet_job(shape)));
  };
  for (const std::uint32_t members : {256U, 1'024U, 4'096U, 16'384U}) add({.members = members}, 1);
  for (const std::uint32_t losses : {8U, 64U, 512U}) add({.members = 16'384}, losses);
  for (const std::uint32_t losses : {1U, 64U}) add({.members = 16'384, .lanes_of_member = 4}, losses);
  std::cout << all.dump(1) << '\n';
  return 0;
}

}  // namespace
}  // namespace kintsugi::bench

int main() {
  return kintsugi::bench::run();
}
