#include "sim/cost/system.hpp"

namespace kintsugi::sim {

namespace {

const std::vector<SystemFigures>& table() {
  static const std::vector<SystemFigures> systems = {
      {
          .name = "h100-roce-400g",  // the cluster of "The Llama 3 Herd of Models", arXiv 2407.21783
          .rank_flops = 989.4e12,    // NVIDIA H100 data sheet: 1,979 TFLOP/s with sparsity, half of it dense
          .local_bandwidth = 450e9,  // NVLink 4, 900 GB/s both ways (same sheet)
          .rank_bandwidth = 50e9,    // 400 Gb/s for each GPU (Llama 3, section 3.3.1)
          .latency = 10e-6,          // a few switches of RoCE: an assumption
          .oversubscription = 7,     // 1:7 at the aggregation layer (section 3.3.1)
          .storage_write = 2e12,     // Tectonic, 2 TB/s sustained (section 3.3.1)
          .storage_read = 7e12,      // 7 TB/s at its peak (section 3.3.1)
      },
      {
          .name = "a100-ib-200g",    // Meta's research cluster, "Revisiting Reliability", arXiv 2410.21680
          .rank_flops = 312e12,      // NVIDIA A100 data sheet, dense bfloat16
          .local_bandwidth = 300e9,  // NVLink 3, 600 GB/s both ways (same sheet)
          .rank_bandwidth = 25e9,    // 200 Gb/s for each GPU
          .latency = 5e-6,           // InfiniBand through three tiers: an assumption
          .storage_write = 0.5e12,   // an assumption
          .storage_read = 1e12,      // an assumption
      },
      {
          .name = "cpu-1g",           // this machine's kind: what examples/tiny.yaml runs on
          .rank_flops = 100e9,        // one AVX2 core, float32: an assumption
          .local_bandwidth = 5e9,     // shared memory: an assumption
          .rank_bandwidth = 0.125e9,  // 1 Gb/s
          .latency = 100e-6,          // an assumption
          .storage_write = 0.5e9,     // an assumption
          .storage_read = 0.5e9,      // an assumption
      },
  };
  return systems;
}

}  // namespace

std::optional<SystemFigures> find_system(std::string_view name) {
  for (const SystemFigures& system : table()) {
    if (system.name == name) return system;
  }
  return {};
}

std::vector<std::string_view> system_names() {
  std::vector<std::string_view> names;
  for (const SystemFigures& system : table()) names.push_back(system.name);
  return names;
}

}  // namespace kintsugi::sim
