// Workload and cluster of a scenario file.
#include <fmt/format.h>

#include <algorithm>

#include "engine/model/presets.hpp"
#include "sim/scenario/scenario_map.hpp"
#include "sim/scenario/scenario_parts.hpp"

namespace kintsugi::sim {

namespace {

constexpr NamedValue<ModelFamily> kFamilies[] = {{"gpt2", ModelFamily::gpt2}, {"llama", ModelFamily::llama}};

ModelConfig read_model(const YamlNode& node, ConfigErrors& errors) {
  if (node.kind == YamlNode::Kind::scalar) {
    const auto preset = find_preset(node.scalar);
    if (!preset) {
      errors.add(node.line, "workload.model",
                 fmt::format("'{}' is not known; write a map, or one of: {}", node.scalar.substr(0, 60),
                             fmt::join(preset_names(), ", ")));
    }
    return preset.value_or(*find_preset("gpt2-124m"));
  }
  ConfigMap map(node, "workload.model",
                {"family", "layers", "width", "heads", "kv_heads", "hidden", "context", "vocabulary", "tied"}, errors);
  ModelConfig m;
  m.family = map.one_of("family", kFamilies);
  m.layers = map.integer("layers", {1, 4096});
  m.width = map.integer("width", {1, 1 << 17});
  m.heads = map.integer("heads", {1, 4096});
  m.kv_heads = map.integer("kv_heads", {1, 4096}, m.heads);
  m.hidden =
      map.integer("hidden", {1, 1 << 20}, m.family == ModelFamily::llama ? default_llama_hidden(m.width) : 4 * m.width);
  m.context = map.integer("context", {1, 1 << 20});
  m.vocabulary = map.integer("vocabulary", {2, 1 << 24});
  m.tied = map.boolean("tied", m.family == ModelFamily::gpt2);
  if (map.failed()) return m;
  if (const Result<void> fine = check_model(m, "model"); !fine) errors.add(node.line, "workload", fine.error().message);
  return m;
}

}  // namespace

Workload read_workload(const YamlNode& node, ConfigErrors& errors) {
  ConfigMap map(node, "workload", {"model", "sequences", "length", "microbatch", "lanes", "efficiency", "parallel"},
                errors);
  Workload w;
  w.model = read_model(map.child("model"), errors);
  w.batch.sequences = map.integer("sequences", {1, 1 << 24});
  w.batch.length = map.integer("length", {1, 1 << 20}, w.model.context);
  w.batch.microbatch = map.integer("microbatch", {1, 1 << 16}, 1);
  w.batch.lanes = map.integer("lanes", {1, 1 << 16});
  w.efficiency = map.number("efficiency", {0, 1, true}, w.efficiency);
  map.check(w.batch.length <= w.model.context, "length", "is longer than the model's context; shorten it");
  map.check(w.batch.sequences % w.batch.lanes == 0, "sequences",
            "is no multiple of lanes; every lane has as many sequences");
  map.check((w.batch.sequences / w.batch.lanes) % w.batch.microbatch == 0, "microbatch",
            "does not divide the sequences of a lane; choose a divisor");
  if (!map.has("parallel")) return w;
  ConfigMap parallel(map.child("parallel"), "workload.parallel", {"tensor", "stages", "interleave"}, errors);
  w.tensor = parallel.integer("tensor", {1, 4096}, 1);
  w.stages = parallel.integer("stages", {1, 4096}, 1);
  w.interleave = parallel.integer("interleave", {1, 4096}, 1);
  parallel.check(w.stages * w.interleave <= w.model.layers + 2, "stages",
                 "times interleave is more than the model has layers; lower one of them");
  parallel.check(w.stages <= w.model.layers, "stages", "is more than the model has blocks; lower it");
  return w;
}

ClusterShape read_cluster(const YamlNode& node, ConfigErrors& errors) {
  ConfigMap map(node, "cluster",
                {"nodes", "spares", "ranks_per_node", "racks", "switches", "pods", "system", "rank_flops",
                 "local_bandwidth", "rank_bandwidth", "oversubscription", "latency", "storage_write", "storage_read"},
                errors);
  ClusterShape c;
  c.nodes = static_cast<std::uint32_t>(map.integer("nodes", {1, 1 << 20}));
  c.spares = static_cast<std::uint32_t>(map.integer("spares", {0, 1 << 20}, 0));
  c.ranks_per_node = static_cast<std::uint32_t>(map.integer("ranks_per_node", {1, 1024}, 8));
  const std::int64_t all = c.provisioned();
  const auto parts = [&](std::string_view key, std::int64_t fallback) {
    const std::int64_t count = map.integer(key, {1, 1 << 20}, fallback);
    map.check(count <= all, key, fmt::format("{} of them for {} nodes; there can be at most one a node", count, all));
    return static_cast<std::uint32_t>(count);
  };
  c.racks = parts("racks", all);
  c.switches = parts("switches", c.racks);
  c.pods = parts("pods", 1);
  const std::string name = map.text("system");
  const auto system = find_system(name);
  if (!system && !map.failed()) {
    map.refuse("system", fmt::format("'{}' is not known; write one of: {}", name, fmt::join(system_names(), ", ")));
  }
  c.system = system.value_or(*find_system("cpu-1g"));
  const auto replace = [&](std::string_view key, double& figure) { figure = map.number(key, {0, 1e21, true}, figure); };
  replace("rank_flops", c.system.rank_flops);
  replace("local_bandwidth", c.system.local_bandwidth);
  replace("rank_bandwidth", c.system.rank_bandwidth);
  replace("storage_write", c.system.storage_write);
  replace("storage_read", c.system.storage_read);
  c.system.oversubscription = map.number("oversubscription", {1, 1000}, c.system.oversubscription);
  c.system.latency = read_seconds(map, "latency", c.system.latency);
  return c;
}

}  // namespace kintsugi::sim
