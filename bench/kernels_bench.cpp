// What the machine can do and what the kernels make of it, in one run: peaks, the triad, the matrix products of GPT-2
// 124M at 1,024 rows, AdamW. Prints JSON: medians and the fastest of some repetitions, and ratios to the peaks.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/clock.hpp"
#include "kernels/cpu/cpu_device.hpp"
#include "kernels/cpu/cpu_memory.hpp"
#include "kernels/cpu/functions.hpp"
#include "kernels/cpu/peak.hpp"

namespace kintsugi::kernels::cpu {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRepetitions = 9;

template <class T>
T* array(const Mapping& mapping) {
  return reinterpret_cast<T*>(mapping.data());
}

Mapping memory(std::int64_t elements, std::size_t element_bytes) {
  return std::move(*map_private(static_cast<std::size_t>(elements) * element_bytes));
}

// work() once to warm up, then timed; `amount` of it a call.
template <class Work>
Json rates(double amount, double peak, const Work& work) {
  const SteadyClock clock;
  work();
  std::vector<double> seconds;
  for (int i = 0; i < kRepetitions; ++i) {
    const Instant start = clock.now();
    work();
    seconds.push_back((clock.now() - start).seconds());
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = amount / seconds[kRepetitions / 2], best = amount / seconds.front();
  return {{"median_g_per_s", median * 1e-9}, {"best_g_per_s", best * 1e-9}, {"best_to_peak", best / peak}};
}

template <class T>
Json linear_rates(ThreadPool& pool, LinearShape s, double peak) {
  const Mapping x = memory(s.rows * s.inputs, sizeof(T)), w = memory(s.outputs * s.inputs, sizeof(T)),
                y = memory(s.rows * s.outputs, sizeof(T)), dw = memory(s.outputs * s.inputs, sizeof(float));
  fill(pool, array<T>(x), 0.5f, s.rows * s.inputs);
  fill(pool, array<T>(w), 0.25f, s.outputs * s.inputs);
  const double flops = 2.0 * static_cast<double>(s.rows * s.inputs) * static_cast<double>(s.outputs);
  Json out;
  out["forward"] = rates(flops, peak, [&] {
    linear_forward(pool, array<T>(y), array<T>(x), array<T>(w), static_cast<const T*>(nullptr), s);
  });
  out["backward_input"] =
      rates(flops, peak, [&] { linear_backward_input(pool, array<T>(x), array<T>(y), array<T>(w), s); });
  out["backward_weight"] = rates(flops, peak, [&] {
    linear_backward_weight(pool, array<float>(dw), static_cast<float*>(nullptr), array<T>(y), array<T>(x), s, true);
  });
  return out;
}

Json adamw_rates(ThreadPool& pool, double triad) {
  constexpr std::int64_t kShards = 8, kCount = std::int64_t{4} << 20;
  const Mapping master = memory(kShards * kCount, 4), m = memory(kShards * kCount, 4), v = memory(kShards * kCount, 4),
                gradient = memory(kShards * kCount, 4), published = memory(kShards * kCount, 4);
  std::byte digests[kShards * 16];
  const AdamwScalars scalars{1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, 1.0f};
  const DecayRange all{0, kCount};
  std::vector<AdamwShard<float>> shards;
  for (std::int64_t i = 0; i < kShards; ++i) {
    const std::int64_t at = i * kCount;
    shards.push_back({array<float>(master) + at,
                      array<float>(m) + at,
                      array<float>(v) + at,
                      array<float>(gradient) + at,
                      array<float>(published) + at,
                      kCount,
                      {&all, 1},
                      scalars,
                      digests + i * 16});
  }
  constexpr double kBytes = 32;  // four read, four written, of four bytes
  return rates(kBytes * kShards * kCount, triad, [&] { adamw(pool, std::span<const AdamwShard<float>>(shards)); });
}

void run(int threads, Json& out) {
  constexpr struct {
    const char* name;
    LinearShape shape;
  } kShapes[] = {{"qkv", {1024, 768, 2304}},
                 {"attention_out", {1024, 768, 768}},
                 {"up", {1024, 768, 3072}},
                 {"down", {1024, 3072, 768}},
                 {"head", {256, 768, 50257}}};
  ThreadPool pool(threads);
  const double peak = measure_fma_peak(threads), bf16_peak = measure_bf16_peak(threads);
  const double triad = measure_triad(threads, std::size_t{128} << 20);
  Json& here = out["threads_" + std::to_string(threads)];
  here["float32_peak_gflops"] = peak * 1e-9;
  here["bfloat16_peak_gflops"] = bf16_peak * 1e-9;
  here["triad_gb_per_s"] = triad * 1e-9;
  for (const auto& [name, shape] : kShapes) {
    here["float32"][name] = linear_rates<float>(pool, shape, peak);
    if (bf16_peak > 0) here["bfloat16"][name] = linear_rates<bf16>(pool, shape, bf16_peak);
  }
  here["adamw"] = adamw_rates(pool, triad);
}

}  // namespace
}  // namespace kintsugi::kernels::cpu

int main() {
  using namespace kintsugi::kernels::cpu;
  prepare_compute_thread();
  Json out;
  out["kernel_variant"] = cpu_kernel_variant();
  for (const int threads : {1, 2}) run(threads, out);
  std::cout << out.dump(2) << "\n";
}
