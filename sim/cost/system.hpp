// What a published machine can do. A scenario names one, and may replace single figures.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kintsugi::sim {

struct SystemFigures {
  std::string name;
  double rank_flops = 0;        // dense bfloat16, peak
  double local_bandwidth = 0;   // bytes/s a rank, one way, to ranks of its node
  double rank_bandwidth = 0;    // bytes/s a rank, one way, to other nodes
  double latency = 0;           // seconds between two nodes
  double oversubscription = 1;  // of the links between pods: so many times less than inside
  double storage_write = 0;     // bytes/s of the whole cluster, sustained
  double storage_read = 0;
};

std::optional<SystemFigures> find_system(std::string_view name);
std::vector<std::string_view> system_names();

}  // namespace kintsugi::sim
