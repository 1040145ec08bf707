// The sections of a scenario file, each read on its own.
#pragma once

#include <filesystem>

#include "engine/model/config_reader.hpp"
#include "sim/scenario/scenario.hpp"

namespace kintsugi::sim {

Workload read_workload(const YamlNode& node, ConfigErrors& errors);
ClusterShape read_cluster(const YamlNode& node, ConfigErrors& errors);
PolicyFigures read_policy(const YamlNode& node, ConfigErrors& errors);
std::vector<FaultSource> read_faults(const YamlNode& node, const ClusterShape& cluster, ConfigErrors& errors);
void read_repair(const YamlNode& node, Distribution (&repair)[kFaultClasses], ConfigErrors& errors);
Lemons read_lemons(const YamlNode& node, const ClusterShape& cluster, ConfigErrors& errors);
SpotArrivals read_spot(const YamlNode& node, ConfigErrors& errors);

}  // namespace kintsugi::sim
