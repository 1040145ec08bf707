#include "sim/scenario/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.hpp"
#include "sim/scenario/scenario_map.hpp"
#include "sim/scenario/scenario_parts.hpp"

namespace kintsugi::sim {

namespace {

constexpr std::pair<std::string_view, FaultClass> kClasses[] = {{"process", FaultClass::process},
                                                                {"device", FaultClass::device},
                                                                {"node", FaultClass::node},
                                                                {"rack", FaultClass::rack},
                                                                {"switch", FaultClass::network_switch},
                                                                {"network", FaultClass::network},
                                                                {"supervisor", FaultClass::supervisor},
                                                                {"corruption", FaultClass::corruption},
                                                                {"straggler", FaultClass::straggler},
                                                                {"maintenance", FaultClass::maintenance}};

// The rules between sections.
void check_whole(const Scenario& s, ConfigMap& map) {
  const auto tensor = static_cast<std::uint32_t>(s.workload.tensor);
  map.check(
      s.cluster.ranks_per_node % tensor == 0, "workload",
      fmt::format("parallel.tensor: {} ranks do not divide the {} of a node; a tensor-parallel group stays in one",
                  tensor, s.cluster.ranks_per_node));
  if (map.failed()) return;
  const std::int64_t members = std::int64_t{s.cluster.nodes} * s.members_per_node();
  const std::int64_t cells = s.workload.stages * s.workload.batch.lanes;
  map.check(members <= cells, "cluster",
            fmt::format("nodes: {} groups of ranks but only {} cells ({} stages x {} lanes) to work; raise "
                        "workload.lanes or use fewer nodes",
                        members, cells, s.workload.stages, s.workload.batch.lanes));
  map.check(s.policy.replicas <= members, "policy", "replicas: more copies than there are groups of ranks; lower it");
}

// All are drawn before the run; a century of a large fleet has fewer.
constexpr double kMostFaults = 1e7;

Result<Scenario> read(const YamlNode& root, const std::string& source, const std::filesystem::path& folder) {
  ConfigErrors errors(source);
  ConfigMap map(
      root, "",
      {"scenario", "seed", "duration", "workload", "cluster", "policy", "faults", "repair", "lemons", "spot", "trace"},
      errors);
  Scenario s;
  s.name = map.text("scenario");
  s.seed = map.seed("seed", 0);
  s.duration = read_span(map, "duration");
  s.workload = read_workload(map.child("workload"), errors);
  s.cluster = read_cluster(map.child("cluster"), errors);
  if (map.has("policy")) s.policy = read_policy(map.child("policy"), errors);
  if (map.has("faults")) s.faults = read_faults(map.child("faults"), s.cluster, errors);
  double drawn = 0;
  for (const FaultSource& f : s.faults) drawn += f.gap ? s.duration / f.gap->expected() * f.burst : 0;
  map.check(
      drawn <= kMostFaults, "faults",
      fmt::format("some {:.0e} faults would be drawn, and {:.0e} are the most; let them come less often, or shorten "
                  "the duration",
                  drawn, kMostFaults));
  for (Distribution& repair : s.repair) repair = {Distribution::Kind::fixed, 86'400};
  if (map.has("repair")) read_repair(map.child("repair"), s.repair, errors);
  if (map.has("lemons")) s.lemons = read_lemons(map.child("lemons"), s.cluster, errors);
  if (map.has("spot")) s.spot = read_spot(map.child("spot"), errors);
  check_whole(s, map);
  if (errors.any()) return errors.first();
  if (!map.has("trace")) return s;
  const std::string name = map.text("trace");
  if (errors.any()) return errors.first();
  const std::string path = (folder / name).string();
  KINTSUGI_TRY_ASSIGN(const std::string text, read_text_file(path, kMaxYamlBytes * 64));
  KINTSUGI_TRY_ASSIGN(s.trace, name.ends_with(".json") ? parse_trace_json(text, path) : parse_trace_csv(text, path));
  for (const TraceEvent& event : s.trace) {
    map.check(event.node < s.cluster.provisioned(), "trace",
              fmt::format("{} names node {}, and there are {}; provide more nodes, or cut the trace", name, event.node,
                          s.cluster.provisioned()));
  }
  if (errors.any()) return errors.first();
  return s;
}

}  // namespace

const char* to_string(FaultClass kind) {
  for (const auto& [name, value] : kClasses) {
    if (value == kind) return name.data();
  }
  KINTSUGI_UNREACHABLE();
}

std::optional<FaultClass> fault_class_from(std::string_view name) {
  for (const auto& [known, value] : kClasses) {
    if (known == name) return value;
  }
  return {};
}

std::uint32_t ClusterShape::rack_of(std::uint32_t node) const {
  return static_cast<std::uint32_t>(std::uint64_t{node} * racks / provisioned());
}

std::uint32_t ClusterShape::switch_of(std::uint32_t node) const {
  return static_cast<std::uint32_t>(std::uint64_t{node} * switches / provisioned());
}

Result<Scenario> parse_scenario(const std::string& text, const std::string& source) {
  KINTSUGI_TRY_ASSIGN(const YamlNode root, parse_yaml(text, source));
  return read(root, source, std::filesystem::path(source).parent_path());
}

Result<Scenario> load_scenario(const std::string& path) {
  KINTSUGI_TRY_ASSIGN(const std::string text, read_text_file(path, kMaxYamlBytes));
  return parse_scenario(text, path);
}

}  // namespace kintsugi::sim
