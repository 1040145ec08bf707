// What goes wrong, how long it lasts, and how it is met: faults, repair, lemons, spot and policy of a scenario file.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/scenario/scenario_map.hpp"
#include "sim/scenario/scenario_parts.hpp"

namespace kintsugi::sim {

namespace {

std::optional<std::uint32_t> read_target(ConfigMap& map, const FaultSource& f, const ClusterShape& cluster) {
  if (!map.has("target")) return {};
  const bool is_rack = f.kind == FaultClass::rack, is_switch = f.kind == FaultClass::network_switch;
  const std::uint32_t there = is_rack ? cluster.racks : is_switch ? cluster.switches : cluster.provisioned();
  return static_cast<std::uint32_t>(map.integer("target", {0, std::int64_t{there} - 1}));
}

FaultSource read_fault(const YamlNode& node, const std::string& path, const ClusterShape& cluster,
                       ConfigErrors& errors) {
  ConfigMap map(node, path,
                {"cause", "class", "at", "at_step", "every", "count", "over", "distribution", "shape", "sigma",
                 "during_recovery", "target", "burst", "within", "hang", "slowdown"},
                errors);
  FaultSource f;
  const std::string name = map.text("class");
  const std::optional<FaultClass> kind = fault_class_from(name);
  if (!kind && !name.empty()) {
    map.refuse("class", fmt::format("'{}' is not known; write one of: process, device, node, rack, switch, network, "
                                    "supervisor, corruption, straggler, maintenance",
                                    name.substr(0, 40)));
  }
  f.kind = kind.value_or(FaultClass::node);
  f.cause = map.text("cause", name.empty() ? "fault" : name);
  const int ways =
      map.has("at") + map.has("at_step") + map.has("every") + map.has("count") + map.has("during_recovery");
  map.check(ways == 1, "class",
            "comes when? write exactly one of: at, at_step, every, count (with over), during_recovery");
  if (map.has("at")) f.at = read_seconds(map, "at");
  if (map.has("at_step")) f.at_step = static_cast<std::uint64_t>(map.integer("at_step", {1, std::int64_t{1} << 40}));
  if (map.has("during_recovery")) f.during_recovery = map.number("during_recovery", {0, 1, true});
  map.check(map.has("count") == map.has("over"), map.has("count") ? "count" : "over",
            "`count` and `over` stand together: so many faults in so long a time");
  if (map.has("every")) f.gap = read_kind(map, read_span(map, "every"));
  if (map.has("count")) {
    const double count = map.number("count", {0, 1e9, true});
    f.gap = read_kind(map, read_span(map, "over") / std::max(count, 1e-9));
  }
  map.check(f.gap || !map.has("distribution"), "distribution", "belongs to random faults; remove it, or write `every`");
  f.target = read_target(map, f, cluster);
  f.burst = static_cast<std::uint32_t>(map.integer("burst", {1, 1 << 16}, 1));
  f.burst_within = read_seconds(map, "within", 0);
  map.check(map.has("within") == map.has("burst"), map.has("within") ? "within" : "burst",
            "`burst` and `within` stand together: so many faults within so long a time");
  f.hang = map.boolean("hang", false);
  f.slowdown = map.number("slowdown", {1, 1000}, 2.0);
  map.check(!map.has("slowdown") || f.kind == FaultClass::straggler, "slowdown", "belongs to stragglers; remove it");
  return f;
}

RestartFigures read_restart(ConfigMap& map, std::string_view key, RestartFigures r, ConfigErrors& errors) {
  if (!map.has(key)) return r;
  ConfigMap inner(map.child(key), "policy." + std::string(key), {"interval", "write", "restart", "timeout", "clock"},
                  errors);
  static constexpr NamedValue<bool> kClocks[] = {{"wall", false}, {"productive", true}};
  r.interval = read_span(inner, "interval", r.interval);
  r.write = read_seconds(inner, "write", r.write);
  r.restart = read_seconds(inner, "restart", r.restart);
  r.timeout = read_seconds(inner, "timeout", r.timeout);
  r.productive_clock = inner.one_of("clock", kClocks, r.productive_clock);
  return r;
}

}  // namespace

std::vector<FaultSource> read_faults(const YamlNode& node, const ClusterShape& cluster, ConfigErrors& errors) {
  if (node.kind != YamlNode::Kind::sequence)
    errors.add(node.line, "faults", "must be a list; begin each fault with `-`");
  std::vector<FaultSource> faults;
  for (const YamlNode& item : node.items) {
    faults.push_back(read_fault(item, fmt::format("faults[{}]", faults.size()), cluster, errors));
  }
  return faults;
}

void read_repair(const YamlNode& node, Distribution (&repair)[kFaultClasses], ConfigErrors& errors) {
  ConfigMap map(node, "repair",
                {"process", "device", "node", "rack", "switch", "network", "straggler", "corruption", "maintenance"},
                errors);
  for (const YamlEntry& entry : node.entries) {
    const std::optional<FaultClass> kind = fault_class_from(entry.key);
    if (!kind) continue;
    repair[static_cast<int>(*kind)] = read_distribution(entry.value, "repair." + entry.key, errors);
  }
}

Lemons read_lemons(const YamlNode& node, const ClusterShape& cluster, ConfigErrors& errors) {
  ConfigMap map(node, "lemons", {"count", "share"}, errors);
  Lemons lemons;
  lemons.count = static_cast<std::uint32_t>(map.integer("count", {1, cluster.provisioned()}));
  lemons.share = map.number("share", {0, 1, true});
  return lemons;
}

SpotArrivals read_spot(const YamlNode& node, ConfigErrors& errors) {
  ConfigMap map(node, "spot", {"every", "stay", "notice", "at_most", "distribution", "shape", "sigma"}, errors);
  SpotArrivals spot;
  spot.gap = read_kind(map, read_span(map, "every"));
  spot.stay = read_distribution(map.child("stay"), "spot.stay", errors);
  spot.notice = read_seconds(map, "notice", spot.notice);
  spot.at_most = static_cast<std::uint32_t>(map.integer("at_most", {1, 1 << 16}));
  return spot;
}

PolicyFigures read_policy(const YamlNode& node, ConfigErrors& errors) {
  ConfigMap map(
      node, "policy",
      {"process_detection", "hang_detection", "straggler_detection", "rebuild", "process_start", "orphan_limit",
       "supervisor_restart", "replicas", "checkpoint_interval", "restore", "restart", "snapshot", "replica_groups"},
      errors);
  PolicyFigures p;
  p.process_detection = read_seconds(map, "process_detection", p.process_detection);
  p.hang_detection = read_seconds(map, "hang_detection", p.hang_detection);
  p.straggler_detection = read_seconds(map, "straggler_detection", p.straggler_detection);
  p.rebuild = read_seconds(map, "rebuild", p.rebuild);
  p.process_start = read_seconds(map, "process_start", p.process_start);
  p.orphan_limit = read_span(map, "orphan_limit", p.orphan_limit);
  p.supervisor_restart = read_seconds(map, "supervisor_restart", p.supervisor_restart);
  p.replicas = map.integer("replicas", {1, 16}, p.replicas);
  p.checkpoint_interval = read_span(map, "checkpoint_interval", p.checkpoint_interval);
  p.restore = read_seconds(map, "restore", p.restore);
  p.restart = read_restart(map, "restart", p.restart, errors);
  p.snapshot = read_restart(map, "snapshot", p.snapshot, errors);
  if (!map.has("replica_groups")) return p;
  ConfigMap groups(map.child("replica_groups"), "policy.replica_groups", {"stall", "rejoin"}, errors);
  p.groups.stall = read_seconds(groups, "stall", p.groups.stall);
  p.groups.rejoin = read_seconds(groups, "rejoin", p.groups.rejoin);
  return p;
}

}  // namespace kintsugi::sim
