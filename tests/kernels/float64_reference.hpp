// What kernel tests share: inputs, comparison against float64 references, and the claim that threads never show.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/philox.hpp"
#include "kernels/cpu/functions.hpp"

namespace kintsugi::kernels::cpu {

using Storages = ::testing::Types<float, bf16>;

inline double to_double(float v) {
  return v;
}
inline double to_double(bf16 v) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(v.bits) << 16);
}

// Rounds to nearest even.
template <class T>
T rounded(double value) {
  const auto single = static_cast<float>(value);
  if constexpr (std::is_same_v<T, float>) {
    return single;
  } else {
    const auto bits = std::bit_cast<std::uint32_t>(single);
    return bf16{static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
  }
}

// Uniform in [-scale, scale], representable in T.
template <class T>
std::vector<T> random_vector(std::int64_t count, double scale, std::uint64_t seed) {
  std::vector<T> out;
  for (std::int64_t i = 0; i < count; ++i) {
    const double u = unit_interval(philox_u64(philox_key(seed), static_cast<std::uint64_t>(i), 1));
    out.push_back(rounded<T>(scale * (2 * u - 1)));
  }
  return out;
}

inline std::vector<std::int32_t> random_indices(std::int64_t count, std::int64_t below, std::uint64_t seed) {
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < count; ++i) {
    out.push_back(static_cast<std::int32_t>(philox_u64(philox_key(seed), static_cast<std::uint64_t>(i), 2) %
                                            static_cast<std::uint64_t>(below)));
  }
  return out;
}

template <class T>
std::vector<double> doubles(const std::vector<T>& values) {
  std::vector<double> out;
  for (const T v : values) out.push_back(to_double(v));
  return out;
}

// |actual - expected| <= absolute + one rounding to T. `absolute` is float32's share: a few 2^-24 of the magnitudes
// that were added, times a small factor for the length of the sums; the rounding is 2^-8 relative for bfloat16 (8 bits
// of precision, half a unit, doubled since float32's error can move a value over a boundary) and 2^-22 for float32.
template <class T>
void expect_close(const std::vector<T>& actual, const std::vector<double>& expected, double absolute,
                  const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  const double relative = std::is_same_v<T, float> ? 0x1p-22 : 0x1p-8;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(to_double(actual[i]), expected[i], absolute + relative * std::abs(expected[i])) << what << " at " << i;
  }
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// run(pool) returns a vector; 1, 2 and 3 threads must give the same bits.
template <class Run>
void expect_threads_do_not_show(const Run& run) {
  ThreadPool one(1);
  const auto expected = run(one);
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    EXPECT_TRUE(same_bits(run(pool), expected)) << threads << " threads";
  }
}

// The slope of loss(x) at x[i] by central differences. loss is computed in float32 with noise of about 1e-7, which h of
// 1/64 keeps below 1e-5; the error of the formula itself is h^2 / 6 of the third derivative.
template <class Loss>
double numerical_slope(std::vector<float> x, std::size_t i, const Loss& loss) {
  const float h = 0x1p-6f, at = x[i];
  x[i] = at + h;
  const double above = loss(x);
  x[i] = at - h;
  return (above - loss(x)) / (2.0 * h);
}

}  // namespace kintsugi::kernels::cpu
