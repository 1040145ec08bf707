// GELU in its tanh form (Hendrycks and Gimpel 2016), one pass over memory. With y = 2 sqrt(2/pi) (x + 0.044715 x^3),
// 0.5 (1 + tanh(y / 2)) is the logistic function of y: one exponential and one division.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gelu.cpp"
#include <hwy/foreach_target.h>
// After it:
#include <algorithm>
#include <type_traits>

#include "kernels/cpu/exp-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace {

constexpr float kTwiceRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

HWY_INLINE Logistic gate(Float d, FloatVector x, FloatVector square) {
  const auto inner = hn::MulAdd(hn::Set(d, kCubic), square, hn::Set(d, 1.0f));
  return logistic(d, hn::Mul(hn::Mul(hn::Set(d, kTwiceRootTwoOverPi), x), inner));
}

HWY_INLINE FloatVector value(Float d, FloatVector x) {
  return hn::Mul(x, gate(d, x, hn::Mul(x, x)).value);
}

HWY_INLINE FloatVector gradient(Float d, FloatVector x, FloatVector grad_out) {
  const auto square = hn::Mul(x, x);
  const Logistic s = gate(d, x, square);
  const auto inner_slope =
      hn::Mul(hn::Set(d, kTwiceRootTwoOverPi), hn::MulAdd(hn::Set(d, 3 * kCubic), square, hn::Set(d, 1.0f)));
  return hn::Mul(grad_out, hn::MulAdd(hn::Mul(x, s.slope), inner_slope, s.value));
}

template <class T>
void forward(T* out, const T* in, std::int64_t count) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= count; i += step) store(d, value(d, load(d, in + i)), out + i);
  const auto rest = static_cast<std::size_t>(count - i);
  if (rest > 0) store_first(d, value(d, load_first(d, in + i, rest)), out + i, rest);
}

template <class T>
void backward(T* grad_in, const T* grad_out, const T* in, std::int64_t count) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= count; i += step) store(d, gradient(d, load(d, in + i), load(d, grad_out + i)), grad_in + i);
  const auto rest = static_cast<std::size_t>(count - i);
  if (rest == 0) return;
  store_first(d, gradient(d, load_first(d, in + i, rest), load_first(d, grad_out + i, rest)), grad_in + i, rest);
}

void forward_f32(float* out, const float* in, std::int64_t count) {
  forward(out, in, count);
}
void forward_bf16(bf16* out, const bf16* in, std::int64_t count) {
  forward(out, in, count);
}
void backward_f32(float* grad_in, const float* grad_out, const float* in, std::int64_t count) {
  backward(grad_in, grad_out, in, count);
}
void backward_bf16(bf16* grad_in, const bf16* grad_out, const bf16* in, std::int64_t count) {
  backward(grad_in, grad_out, in, count);
}

}  // namespace
}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace kintsugi::kernels::cpu {

HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_bf16);
HWY_EXPORT(backward_f32);
HWY_EXPORT(backward_bf16);

namespace {
constexpr std::int64_t kPiece = 16384;  // elements: three float32 streams of it stay in a second-level cache
}

template <class T>
void gelu_forward(ThreadPool& pool, T* out, const T* in, std::int64_t count) {
  pool.run((count + kPiece - 1) / kPiece, [=](std::int64_t piece) {
    const std::int64_t first = piece * kPiece;
    const std::int64_t n = std::min(kPiece, count - first);
    if constexpr (std::is_same_v<T, float>) {
      HWY_DYNAMIC_DISPATCH(forward_f32)(out + first, in + first, n);
    } else {
      HWY_DYNAMIC_DISPATCH(forward_bf16)(out + first, in + first, n);
    }
  });
}

template <class T>
void gelu_backward(ThreadPool& pool, T* grad_in, const T* grad_out, const T* in, std::int64_t count) {
  pool.run((count + kPiece - 1) / kPiece, [=](std::int64_t piece) {
    const std::int64_t first = piece * kPiece;
    const std::int64_t n = std::min(kPiece, count - first);
    if constexpr (std::is_same_v<T, float>) {
      HWY_DYNAMIC_DISPATCH(backward_f32)(grad_in + first, grad_out + first, in + first, n);
    } else {
      HWY_DYNAMIC_DISPATCH(backward_bf16)(grad_in + first, grad_out + first, in + first, n);
    }
  });
}

template void gelu_forward(ThreadPool&, float*, const float*, std::int64_t);
template void gelu_forward(ThreadPool&, bf16*, const bf16*, std::int64_t);
template void gelu_backward(ThreadPool&, float*, const float*, const float*, std::int64_t);
template void gelu_backward(ThreadPool&, bf16*, const bf16*, const bf16*, std::int64_t);

}  // namespace kintsugi::kernels::cpu
#endif
