#include "sim/report/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kintsugi::sim {

namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Distribution& d) {
  static constexpr const char* kNames[] = {"fixed", "exponential", "weibull", "gamma", "log_normal", "empirical"};
  Json json{{"distribution", kNames[static_cast<int>(d.kind)]}, {"mean_s", d.expected()}};
  if (d.kind != Distribution::Kind::fixed && d.kind != Distribution::Kind::exponential) json["shape"] = d.shape;
  return json;
}

Json parameters(const Scenario& s) {
  const SystemFigures& system = s.cluster.system;
  const PolicyFigures& p = s.policy;
  Json json;
  json["workload"] = {{"layers", s.workload.model.layers},
                      {"width", s.workload.model.width},
                      {"sequences", s.workload.batch.sequences},
                      {"length", s.workload.batch.length},
                      {"lanes", s.workload.batch.lanes},
                      {"tensor", s.workload.tensor},
                      {"stages", s.workload.stages},
                      {"interleave", s.workload.interleave},
                      {"efficiency", s.workload.efficiency}};
  json["cluster"] = {{"nodes", s.cluster.nodes},
                     {"spares", s.cluster.spares},
                     {"ranks_per_node", s.cluster.ranks_per_node},
                     {"pods", s.cluster.pods},
                     {"racks", s.cluster.racks},
                     {"switches", s.cluster.switches},
                     {"system", system.name},
                     {"rank_flops", system.rank_flops},
                     {"local_bandwidth", system.local_bandwidth},
                     {"rank_bandwidth", system.rank_bandwidth},
                     {"latency_s", system.latency}};
  json["policy"] = {{"process_detection_s", p.process_detection},
                    {"hang_detection_s", p.hang_detection},
                    {"straggler_detection_s", p.straggler_detection},
                    {"rebuild_s", p.rebuild},
                    {"process_start_s", p.process_start},
                    {"orphan_limit_s", p.orphan_limit},
                    {"supervisor_restart_s", p.supervisor_restart},
                    {"replicas", p.replicas},
                    {"checkpoint_interval_s", p.checkpoint_interval},
                    {"restore_s", p.restore}};
  for (const FaultSource& f : s.faults) {
    Json fault{{"cause", f.cause}, {"class", to_string(f.kind)}};
    if (f.gap) fault["gap"] = to_json(*f.gap);
    fault["repair"] = to_json(s.repair[static_cast<int>(f.kind)]);
    json["faults"].push_back(std::move(fault));
  }
  return json;
}

Json loss_of(const Outcome& out) {
  Json json = Json::object();
  for (const auto& [cause, loss] : out.lost) json[cause] = {{"seconds", loss.seconds}, {"events", loss.events}};
  return json;
}

Json recovery_of(const Outcome& out) {
  return {{"count", out.recovery.size()},
          {"p50", percentile(out.recovery, 0.5)},
          {"p90", percentile(out.recovery, 0.9)},
          {"p99", percentile(out.recovery, 0.99)},
          {"most", percentile(out.recovery, 1)}};
}

Json to_json(const IncidentOutcome& i) {
  const auto at = [](const std::optional<Instant>& t) { return t ? Json(t->ns * 1e-9) : Json(nullptr); };
  return {{"id", i.machine.id},
          {"kind", i.machine.kind},
          {"cause", i.cause},
          {"target", i.machine.target},
          {"struck_s", i.struck},
          {"detected_s", i.machine.detected.ns * 1e-9},
          {"fenced_s", at(i.machine.fenced)},
          {"resumed_s", at(i.machine.resumed)},
          {"first_commit_s", at(i.machine.first_commit)},
          {"restarts", i.machine.restarts},
          {"lanes_recomputed", i.machine.lanes_recomputed},
          {"steps_lost", i.machine.steps_lost}};
}

Json machine_of(const FleetReport& r) {
  const Fold fold = fold_of(*r.scenario);
  return {{"steps", r.ours.machine_steps},
          {"plans", r.ours.plans},
          {"queue_events", r.ours.events},
          {"folds",
           {{"ranks_of_a_member", r.scenario->workload.tensor},
            {"members", fold.members},
            {"shards", fold.shards},
            {"real_shards", fold.real_shards},
            {"width_divisor", fold.divisor},
            {"reports", "of members that are as their plan makes one expect: one event"},
            {"steps", "of a generation the machine sees the first and the last"}}}};
}

}  // namespace

std::string percent(double share) {
  return fmt::format("{:.2f} %", share * 100);
}

double percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = p * static_cast<double>(values.size());
  const auto index = static_cast<std::size_t>(std::max(0.0, rank - 1e-9));
  return values[std::min(index, values.size() - 1)];
}

FleetReport make_report(const Scenario& scenario, std::uint64_t seed, const Progress& progress) {
  FleetReport report;
  report.scenario = &scenario;
  report.seed = seed;
  const Timeline timeline = draw_timeline(scenario, seed);
  report.ours = run_fleet(scenario, timeline, seed, progress);
  report.others = run_other_policies(scenario, timeline, report.ours.step_seconds);
  return report;
}

Json to_json(const FleetReport& r) {
  const FleetOutcome& o = r.ours;
  Json json;
  json["simulated"] = true;
  json["scenario"] = r.scenario->name;
  json["seed"] = r.seed;
  json["goodput"] = o.goodput();
  json["goodput_in_job"] = o.goodput_in_job();
  json["event_hash"] = fmt::format("{:016x}", o.event_hash);
  json["tokens"] = o.tokens();
  json["tokens_per_second"] = o.wall > 0 ? o.tokens() / o.wall : 0;
  json["wall_s"] = o.wall;
  json["steps"] = o.steps;
  json["step_s"] = o.step_seconds;
  const StepCost cost(*r.scenario);
  const double peak = static_cast<double>(o.in_job_ranks) * r.scenario->cluster.system.rank_flops;
  json["mfu_without_faults"] = o.step_seconds > 0 ? cost.flops() / o.step_seconds / peak : 0;
  json["ranks"] = {{"in_job", o.in_job_ranks}, {"provisioned", o.provisioned_ranks}};
  json["lost_s"] = loss_of(o);
  json["faults"] = o.faults;
  json["faults_on_idle_machines"] = o.idle_faults;
  json["recovery_s"] = recovery_of(o);
  json["returns_to_checkpoint"] = o.returns;
  json["steps_lost"] = o.steps_lost;
  if (o.returns > 0) json["why_last_return"] = o.why_ended;
  json["machine"] = machine_of(r);
  for (const Outcome& other : r.others) {
    json["policies"].push_back({{"policy", other.policy},
                                {"assumptions", other.assumptions},
                                {"goodput", other.goodput()},
                                {"goodput_in_job", other.goodput_in_job()},
                                {"lost_s", loss_of(other)},
                                {"recovery_s", recovery_of(other)}});
  }
  json["table"] = nullptr;
  for (const SweepCell& c : r.sweep) {
    json["table"].push_back({{"rebuild_s", c.rebuild},
                             {"hang_detection_s", c.hang_detection},
                             {"spares", c.spares},
                             {"duration_s", r.sweep_duration},
                             {"goodput", c.goodput},
                             {"goodput_in_job", c.goodput_in_job}});
  }
  json["parameters"] = parameters(*r.scenario);
  json["incidents"] = Json::array();
  for (const IncidentOutcome& i : o.incidents) json["incidents"].push_back(to_json(i));
  json["version"] = r.version;
  return json;
}

}  // namespace kintsugi::sim
