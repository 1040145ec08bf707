// SwiGLU (Shazeer 2020): out = silu(gate) * up, with [gate | up] side by side in a row; one pass over memory.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/swiglu.cpp"
#include <hwy/foreach_target.h>
// After it:
#include <algorithm>
#include <type_traits>

#include "kernels/cpu/exp-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace {

HWY_INLINE FloatVector gated(Float d, FloatVector gate, FloatVector up) {
  return hn::Mul(hn::Mul(gate, logistic(d, gate).value), up);
}

// n columns of one row.
template <class T>
void row_forward(T* out, const T* gate, const T* up, std::int64_t n) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= n; i += step) store(d, gated(d, load(d, gate + i), load(d, up + i)), out + i);
  const auto rest = static_cast<std::size_t>(n - i);
  if (rest > 0) store_first(d, gated(d, load_first(d, gate + i, rest), load_first(d, up + i, rest)), out + i, rest);
}

struct GateAndUp {
  FloatVector gate;
  FloatVector up;
};

HWY_INLINE GateAndUp gradients(Float d, FloatVector gate, FloatVector up, FloatVector grad_out) {
  const Logistic s = logistic(d, gate);
  const auto silu_slope = hn::MulAdd(gate, s.slope, s.value);
  return {hn::Mul(hn::Mul(grad_out, up), silu_slope), hn::Mul(grad_out, hn::Mul(gate, s.value))};
}

template <class T>
void row_backward(T* grad_gate, T* grad_up, const T* grad_out, const T* gate, const T* up, std::int64_t n) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= n; i += step) {
    const GateAndUp g = gradients(d, load(d, gate + i), load(d, up + i), load(d, grad_out + i));
    store(d, g.gate, grad_gate + i);
    store(d, g.up, grad_up + i);
  }
  const auto rest = static_cast<std::size_t>(n - i);
  if (rest == 0) return;
  const GateAndUp g =
      gradients(d, load_first(d, gate + i, rest), load_first(d, up + i, rest), load_first(d, grad_out + i, rest));
  store_first(d, g.gate, grad_gate + i, rest);
  store_first(d, g.up, grad_up + i, rest);
}

void row_forward_f32(float* out, const float* gate, const float* up, std::int64_t n) {
  row_forward(out, gate, up, n);
}
void row_forward_bf16(bf16* out, const bf16* gate, const bf16* up, std::int64_t n) {
  row_forward(out, gate, up, n);
}
void row_backward_f32(float* grad_gate, float* grad_up, const float* grad_out, const float* gate, const float* up,
                      std::int64_t n) {
  row_backward(grad_gate, grad_up, grad_out, gate, up, n);
}
void row_backward_bf16(bf16* grad_gate, bf16* grad_up, const bf16* grad_out, const bf16* gate, const bf16* up,
                       std::int64_t n) {
  row_backward(grad_gate, grad_up, grad_out, gate, up, n);
}

}  // namespace
}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace kintsugi::kernels::cpu {

HWY_EXPORT(row_forward_f32);
HWY_EXPORT(row_forward_bf16);
HWY_EXPORT(row_backward_f32);
HWY_EXPORT(row_backward_bf16);

namespace {

constexpr std::int64_t kPiece = 16384;  // elements of `out` at most, unless one row has more

std::int64_t rows_a_piece(std::int64_t hidden) {
  return std::max<std::int64_t>(1, kPiece / std::max<std::int64_t>(1, hidden));
}

}  // namespace

template <class T>
void swiglu_forward(ThreadPool& pool, T* out, const T* in, std::int64_t rows, std::int64_t hidden) {
  const std::int64_t block = rows_a_piece(hidden);
  pool.run((rows + block - 1) / block, [=](std::int64_t piece) {
    for (std::int64_t r = piece * block; r < std::min(rows, (piece + 1) * block); ++r) {
      const T* gate = in + r * 2 * hidden;
      if constexpr (std::is_same_v<T, float>) {
        HWY_DYNAMIC_DISPATCH(row_forward_f32)(out + r * hidden, gate, gate + hidden, hidden);
      } else {
        HWY_DYNAMIC_DISPATCH(row_forward_bf16)(out + r * hidden, gate, gate + hidden, hidden);
      }
    }
  });
}

template <class T>
void swiglu_backward(ThreadPool& pool, T* grad_in, const T* grad_out, const T* in, std::int64_t rows,
                     std::int64_t hidden) {
  const std::int64_t block = rows_a_piece(hidden);
  pool.run((rows + block - 1) / block, [=](std::int64_t piece) {
    for (std::int64_t r = piece * block; r < std::min(rows, (piece + 1) * block); ++r) {
      const T* gate = in + r * 2 * hidden;
      T* grad = grad_in + r * 2 * hidden;
      const T* grad_row = grad_out + r * hidden;
      if constexpr (std::is_same_v<T, float>) {
        HWY_DYNAMIC_DISPATCH(row_backward_f32)(grad, grad + hidden, grad_row, gate, gate + hidden, hidden);
      } else {
        HWY_DYNAMIC_DISPATCH(row_backward_bf16)(grad, grad + hidden, grad_row, gate, gate + hidden, hidden);
      }
    }
  });
}

template void swiglu_forward(ThreadPool&, float*, const float*, std::int64_t, std::int64_t);
template void swiglu_forward(ThreadPool&, bf16*, const bf16*, std::int64_t, std::int64_t);
template void swiglu_backward(ThreadPool&, float*, const float*, const float*, std::int64_t, std::int64_t);
template void swiglu_backward(ThreadPool&, bf16*, const bf16*, const bf16*, std::int64_t, std::int64_t);

}  // namespace kintsugi::kernels::cpu
#endif
