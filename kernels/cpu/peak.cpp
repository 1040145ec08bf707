#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/peak.cpp"
#include <hwy/foreach_target.h>
// Highway's order: this header after foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "kernels/cpu/cpu_memory.hpp"
#include "kernels/cpu/peak.hpp"
#include "kernels/cpu/peak_bf16.hpp"
#include "kernels/cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace {

// `rounds` times twelve independent multiply-adds of a vector: latency 4 times 2 a cycle, and some to spare. Returns
// the operations done; `sink` keeps the compiler honest.
double run_fma(std::int64_t rounds, float* sink) {
  const Float d;
  const FloatVector x = hn::Set(d, *sink), y = hn::Set(d, 0.5f);
  // Twelve different values, or the compiler computes one.
  FloatVector a0 = hn::Iota(d, 0.0f), a1 = hn::Iota(d, 1.0f), a2 = hn::Iota(d, 2.0f), a3 = hn::Iota(d, 3.0f);
  FloatVector a4 = hn::Iota(d, 4.0f), a5 = hn::Iota(d, 5.0f), a6 = hn::Iota(d, 6.0f), a7 = hn::Iota(d, 7.0f);
  FloatVector a8 = hn::Iota(d, 8.0f), a9 = hn::Iota(d, 9.0f), a10 = hn::Iota(d, 10.0f), a11 = hn::Iota(d, 11.0f);
  for (std::int64_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, x, y), a1 = hn::MulAdd(a1, x, y), a2 = hn::MulAdd(a2, x, y), a3 = hn::MulAdd(a3, x, y);
    a4 = hn::MulAdd(a4, x, y), a5 = hn::MulAdd(a5, x, y), a6 = hn::MulAdd(a6, x, y), a7 = hn::MulAdd(a7, x, y);
    a8 = hn::MulAdd(a8, x, y), a9 = hn::MulAdd(a9, x, y), a10 = hn::MulAdd(a10, x, y), a11 = hn::MulAdd(a11, x, y);
  }
  const FloatVector sum =
      hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)),
              hn::Add(hn::Add(hn::Add(a4, a5), hn::Add(a6, a7)), hn::Add(hn::Add(a8, a9), hn::Add(a10, a11))));
  *sink = hn::GetLane(sum);
  return 24.0 * static_cast<double>(rounds) * static_cast<double>(hn::Lanes(d));
}

// a = b + s * c
void run_triad(float* a, const float* b, const float* c, std::int64_t count) {
  const Float d;
  for_vectors(0, count, [&](std::int64_t i, auto lanes) HWY_ATTR {
    store(d, hn::MulAdd(load(d, c + i, lanes), hn::Set(d, 3.0f), load(d, b + i, lanes)), a + i, lanes);
  });
}

}  // namespace
}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kintsugi::kernels::cpu {

HWY_EXPORT(run_fma);
HWY_EXPORT(run_triad);

namespace {

// The sum over threads of each thread's best rate: another process that takes a slice away does not show.
// work(thread) returns what was done in one slice.
template <class Work>
double best_rate(int threads, int slices, const Work& work) {
  std::vector<double> rates(static_cast<std::size_t>(threads), 0);
  std::vector<std::thread> crew;
  for (int t = 0; t < threads; ++t) {
    crew.emplace_back([&, t] {
      const SteadyClock clock;
      for (int i = 0; i < slices; ++i) {
        const Instant start = clock.now();
        const double done = work(t);
        double& best = rates[static_cast<std::size_t>(t)];
        best = std::max(best, done / (clock.now() - start).seconds());
      }
    });
  }
  for (std::thread& member : crew) member.join();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

constexpr int kSlices = 24;
constexpr std::int64_t kRounds = 2'000'000;  // 12 multiply-adds each: 4 ms a slice at 2 a cycle and 3 GHz

}  // namespace

double measure_fma_peak(int threads) {
  return best_rate(threads, kSlices, [](int) {
    float value = 0.25f;
    return HWY_DYNAMIC_DISPATCH(run_fma)(kRounds, &value);
  });
}

double measure_bf16_peak(int threads) {
  const Bf16Burst burst = best_bf16_burst();
  if (burst == nullptr) return 0;
  return best_rate(threads, kSlices, [&](int) { return burst(kRounds / 4); });
}

double measure_triad(int threads, std::size_t bytes) {
  const std::size_t part = bytes / static_cast<std::size_t>(threads) / sizeof(float) * sizeof(float);
  std::vector<Mapping> arrays;
  for (int i = 0; i < 3 * threads; ++i) {
    Result<Mapping> mapping = map_private(part);
    if (!mapping) return 0;
    arrays.push_back(std::move(*mapping));
  }
  const auto array = [&](int i) { return reinterpret_cast<float*>(arrays[static_cast<std::size_t>(i)].data()); };
  return best_rate(threads, 8, [&](int t) {
    HWY_DYNAMIC_DISPATCH(run_triad)
    (array(3 * t), array(3 * t + 1), array(3 * t + 2), static_cast<std::int64_t>(part / sizeof(float)));
    return 3.0 * static_cast<double>(part);
  });
}

}  // namespace kintsugi::kernels::cpu
#endif
