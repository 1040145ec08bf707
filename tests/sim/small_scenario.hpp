// A scenario that tests change: 128 ranks on 16 nodes, two stages.
#pragma once

#include <string>

#include "sim/scenario/scenario.hpp"

namespace kintsugi::sim::testing {

inline std::string small_text(const std::string& more, const std::string& duration = "2d",
                              const std::string& cluster = "spares: 2, racks: 9") {
  return "scenario: small\nseed: 1\nduration: " + duration +
         "\nworkload: { model: llama-3-8b, sequences: 128, lanes: 128, parallel: { tensor: 8, stages: 2 } }\n"
         "cluster: { nodes: 16, ranks_per_node: 8, system: h100-roce-400g, " +
         cluster + " }\n" + more;
}

inline Scenario small(const std::string& more, const std::string& duration = "2d",
                      const std::string& cluster = "spares: 2, racks: 9") {
  return parse_scenario(small_text(more, duration, cluster), "small.yaml").value();
}

}  // namespace kintsugi::sim::testing
