// Root-mean-square normalisation (Zhang and Sennrich 2019). Rows are independent; the gradient of the weight is summed
// down the rows, in order, by pieces of columns.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rmsnorm.cpp"
#include <hwy/foreach_target.h>
// Highway's order: this header after foreach_target.
#include <hwy/highway.h>

#include <cmath>
#include <type_traits>

#include "kernels/cpu/functions.hpp"
#include "kernels/cpu/rows-inl.hpp"
#include "kernels/cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace {

template <class T>
HWY_INLINE void forward_row(T* out, float* rstd, const T* in, const T* weight, std::int64_t width, float epsilon) {
  const Float d;
  const float squares = sum_vectors(width, [&](std::int64_t i, auto lanes) HWY_ATTR {
    const FloatVector x = load(d, in + i, lanes);
    return hn::Mul(x, x);
  });
  const float r = 1.0f / std::sqrt(squares / static_cast<float>(width) + epsilon);
  const FloatVector scale = hn::Set(d, r);
  for_vectors(0, width, [&](std::int64_t i, auto lanes) HWY_ATTR {
    const FloatVector x = hn::Mul(load(d, in + i, lanes), scale);
    store(d, hn::Mul(x, load(d, weight + i, lanes)), out + i, lanes);
  });
  *rstd = r;
}

// With x the normalised input and g = grad_out * weight: grad_in = rstd * (g - x * mean(g * x)).
template <class T>
HWY_INLINE void backward_row(T* grad_in, const T* grad_out, const T* in, float rstd, const T* weight,
                             std::int64_t width) {
  const Float d;
  const FloatVector scale = hn::Set(d, rstd);
  const auto gradient = [&](std::int64_t i, auto lanes)
                            HWY_ATTR { return hn::Mul(load(d, grad_out + i, lanes), load(d, weight + i, lanes)); };
  const auto normal = [&](std::int64_t i, auto lanes) HWY_ATTR { return hn::Mul(load(d, in + i, lanes), scale); };
  const float sum = sum_vectors(
      width, [&](std::int64_t i, auto lanes) HWY_ATTR { return hn::Mul(gradient(i, lanes), normal(i, lanes)); });
  const FloatVector mean_gx = hn::Set(d, sum / static_cast<float>(width));
  for_vectors(0, width, [&](std::int64_t i, auto lanes) HWY_ATTR {
    store(d, hn::Mul(hn::NegMulAdd(normal(i, lanes), mean_gx, gradient(i, lanes)), scale), grad_in + i, lanes);
  });
}

template <class T>
void forward(ThreadPool& pool, T* out, float* rstd, const T* in, const T* weight, std::int64_t rows, std::int64_t width,
             float epsilon) {
  for_rows(pool, rows, width, [&](std::int64_t r) HWY_ATTR {
    forward_row(out + r * width, rstd + r, in + r * width, weight, width, epsilon);
  });
}

template <class T>
void backward(ThreadPool& pool, T* grad_in, float* grad_weight, const T* grad_out, const T* in, const float* rstd,
              const T* weight, std::int64_t rows, std::int64_t width, bool accumulate) {
  // Columns first: grad_in may lie where grad_out did.
  const Float d;
  sum_columns(
      pool, rows, width, hn::Zero(d),
      [&](std::int64_t r, std::int64_t c, FloatVector& total, auto lanes) HWY_ATTR {
        const FloatVector x = hn::Mul(load(d, in + r * width + c, lanes), hn::Set(d, rstd[r]));
        total = hn::MulAdd(load(d, grad_out + r * width + c, lanes), x, total);
      },
      [&](std::int64_t c, const FloatVector& total, auto lanes)
          HWY_ATTR { store_gradient(grad_weight + c, total, accumulate, lanes); });
  for_rows(pool, rows, width, [&](std::int64_t r) HWY_ATTR {
    backward_row(grad_in + r * width, grad_out + r * width, in + r * width, rstd[r], weight, width);
  });
}

void forward_f32(ThreadPool& p, float* out, float* rstd, const float* in, const float* w, std::int64_t rows,
                 std::int64_t width, float epsilon) {
  forward(p, out, rstd, in, w, rows, width, epsilon);
}
void forward_bf16(ThreadPool& p, bf16* out, float* rstd, const bf16* in, const bf16* w, std::int64_t rows,
                  std::int64_t width, float epsilon) {
  forward(p, out, rstd, in, w, rows, width, epsilon);
}
void backward_f32(ThreadPool& p, float* dx, float* dw, const float* dy, const float* x, const float* rstd,
                  const float* w, std::int64_t rows, std::int64_t width, bool accumulate) {
  backward(p, dx, dw, dy, x, rstd, w, rows, width, accumulate);
}
void backward_bf16(ThreadPool& p, bf16* dx, float* dw, const bf16* dy, const bf16* x, const float* rstd, const bf16* w,
                   std::int64_t rows, std::int64_t width, bool accumulate) {
  backward(p, dx, dw, dy, x, rstd, w, rows, width, accumulate);
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

template <class T>
void rmsnorm_forward(ThreadPool& pool, T* out, float* rstd, const T* in, const T* weight, std::int64_t rows,
                     std::int64_t width, float epsilon) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(forward_f32)(pool, out, rstd, in, weight, rows, width, epsilon);
  } else {
    HWY_DYNAMIC_DISPATCH(forward_bf16)(pool, out, rstd, in, weight, rows, width, epsilon);
  }
}

template <class T>
void rmsnorm_backward(ThreadPool& pool, T* grad_in, float* grad_weight, const T* grad_out, const T* in,
                      const float* rstd, const T* weight, std::int64_t rows, std::int64_t width, bool accumulate) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(backward_f32)
    (pool, grad_in, grad_weight, grad_out, in, rstd, weight, rows, width, accumulate);
  } else {
    HWY_DYNAMIC_DISPATCH(backward_bf16)
    (pool, grad_in, grad_weight, grad_out, in, rstd, weight, rows, width, accumulate);
  }
}

#define KINTSUGI_INSTANTIATE(T)                                                                                     \
  template void rmsnorm_forward(ThreadPool&, T*, float*, const T*, const T*, std::int64_t, std::int64_t, float);    \
  template void rmsnorm_backward(ThreadPool&, T*, float*, const T*, const T*, const float*, const T*, std::int64_t, \
                                 std::int64_t, bool)
KINTSUGI_INSTANTIATE(float);
KINTSUGI_INSTANTIATE(bf16);
#undef KINTSUGI_INSTANTIATE

}  // namespace kintsugi::kernels::cpu
#endif
