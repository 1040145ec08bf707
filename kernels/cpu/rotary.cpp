// Rotary position embedding (Su et al. 2021) in Llama's "half" pairing: elements i and i + head_dim / 2 of a head turn
// by position * theta^(-2i / head_dim). A piece is a run of positions: their sines are computed once, in float64 by the
// C library, and serve every sequence and head.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rotary.cpp"
#include <hwy/foreach_target.h>
// After it:
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "base/assert.hpp"
#include "kernels/cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace {

struct Pair {
  FloatVector low;
  FloatVector high;
};

HWY_INLINE Pair turn(FloatVector low, FloatVector high, FloatVector cosine, FloatVector sine) {
  return {hn::NegMulAdd(high, sine, hn::Mul(low, cosine)), hn::MulAdd(low, sine, hn::Mul(high, cosine))};
}

// All heads of one row; cosine, sine: (half) f32.
template <class T>
void rotate_row(T* row, const float* cosine, const float* sine, std::int64_t heads, std::int64_t half) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t h = 0; h < heads; ++h) {
    T* low = row + h * 2 * half;
    T* high = low + half;
    std::int64_t i = 0;
    for (; i + step <= half; i += step) {
      const Pair p = turn(load(d, low + i), load(d, high + i), load(d, cosine + i), load(d, sine + i));
      store(d, p.low, low + i);
      store(d, p.high, high + i);
    }
    const auto rest = static_cast<std::size_t>(half - i);
    if (rest == 0) continue;
    const Pair p = turn(load_first(d, low + i, rest), load_first(d, high + i, rest), load_first(d, cosine + i, rest),
                        load_first(d, sine + i, rest));
    store_first(d, p.low, low + i, rest);
    store_first(d, p.high, high + i, rest);
  }
}

void rotate_row_f32(float* row, const float* cosine, const float* sine, std::int64_t heads, std::int64_t half) {
  rotate_row(row, cosine, sine, heads, half);
}
void rotate_row_bf16(bf16* row, const float* cosine, const float* sine, std::int64_t heads, std::int64_t half) {
  rotate_row(row, cosine, sine, heads, half);
}

}  // namespace
}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace kintsugi::kernels::cpu {

HWY_EXPORT(rotate_row_f32);
HWY_EXPORT(rotate_row_bf16);

namespace {
constexpr std::int64_t kPositions = 16;  // a piece
}

template <class T>
void rotary(ThreadPool& pool, T* x, std::int64_t stride, std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
            std::int64_t length, float theta, bool inverse) {
  KINTSUGI_ASSERT_MSG(head_dim % 2 == 0, "rotary needs an even head_dim");
  const std::int64_t half = head_dim / 2;
  std::vector<double> frequency(static_cast<std::size_t>(half));
  for (std::int64_t i = 0; i < half; ++i) {
    frequency[static_cast<std::size_t>(i)] =
        std::pow(double{theta}, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  }
  const std::int64_t positions = std::min(length, rows);
  pool.run((positions + kPositions - 1) / kPositions, [&, half](std::int64_t piece) {
    std::vector<float> cosine(frequency.size());
    std::vector<float> sine(frequency.size());
    for (std::int64_t p = piece * kPositions; p < std::min(positions, (piece + 1) * kPositions); ++p) {
      for (std::size_t i = 0; i < frequency.size(); ++i) {
        const double angle = static_cast<double>(p) * frequency[i];
        cosine[i] = static_cast<float>(std::cos(angle));
        sine[i] = static_cast<float>(inverse ? -std::sin(angle) : std::sin(angle));
      }
      for (std::int64_t r = p; r < rows; r += length) {
        if constexpr (std::is_same_v<T, float>) {
          HWY_DYNAMIC_DISPATCH(rotate_row_f32)(x + r * stride, cosine.data(), sine.data(), heads, half);
        } else {
          HWY_DYNAMIC_DISPATCH(rotate_row_bf16)(x + r * stride, cosine.data(), sine.data(), heads, half);
        }
      }
    }
  });
}

template void rotary(ThreadPool&, float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, float,
                     bool);
template void rotary(ThreadPool&, bf16*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, float,
                     bool);

}  // namespace kintsugi::kernels::cpu
#endif
