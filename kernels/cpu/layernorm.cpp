// Layer normalisation (Ba, Kiros and Hinton 2016). Rows are independent; gradients of weight and bias are summed down
// the rows, in order, by pieces of columns, so that no thread shows in them.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/layernorm.cpp"
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
HWY_INLINE void forward_row(T* out, float* mean, float* rstd, const T* in, const T* weight, const T* bias,
                            std::int64_t width, float epsilon) {
  const Float d;
  const float n = static_cast<float>(width);
  const float mu = sum_vectors(width, [&](std::int64_t i, auto lanes) HWY_ATTR { return load(d, in + i, lanes); }) / n;
  const FloatVector center = hn::Set(d, mu);
  const float variance = sum_vectors(width,
                                     [&](std::int64_t i, auto lanes) HWY_ATTR {
                                       const FloatVector x = keep(d, hn::Sub(load(d, in + i, lanes), center), lanes);
                                       return hn::Mul(x, x);
                                     }) /
                         n;
  const float r = 1.0f / std::sqrt(variance + epsilon);
  const FloatVector scale = hn::Set(d, r);
  for_vectors(0, width, [&](std::int64_t i, auto lanes) HWY_ATTR {
    const FloatVector x = hn::Mul(hn::Sub(load(d, in + i, lanes), center), scale);
    store(d, hn::MulAdd(x, load(d, weight + i, lanes), load(d, bias + i, lanes)), out + i, lanes);
  });
  *mean = mu;
  *rstd = r;
}

// With x the normalised input and g = grad_out * weight: grad_in = rstd * (g - mean(g) - x * mean(g * x)).
template <class T>
HWY_INLINE void backward_row(T* grad_in, const T* grad_out, const T* in, float mean, float rstd, const T* weight,
                             std::int64_t width) {
  const Float d;
  const FloatVector center = hn::Set(d, mean), scale = hn::Set(d, rstd);
  const auto gradient = [&](std::int64_t i, auto lanes)
                            HWY_ATTR { return hn::Mul(load(d, grad_out + i, lanes), load(d, weight + i, lanes)); };
  const auto normal = [&](std::int64_t i, auto lanes)
                          HWY_ATTR { return hn::Mul(hn::Sub(load(d, in + i, lanes), center), scale); };
  const float n = static_cast<float>(width);
  const FloatVector mean_g = hn::Set(d, sum_vectors(width, gradient) / n);
  const FloatVector mean_gx = hn::Set(d, sum_vectors(width, [&](std::int64_t i, auto lanes) HWY_ATTR {
                                           return hn::Mul(gradient(i, lanes), normal(i, lanes));
                                         }) / n);
  for_vectors(0, width, [&](std::int64_t i, auto lanes) HWY_ATTR {
    const FloatVector rest = hn::NegMulAdd(normal(i, lanes), mean_gx, hn::Sub(gradient(i, lanes), mean_g));
    store(d, hn::Mul(rest, scale), grad_in + i, lanes);
  });
}

template <class T>
void forward(ThreadPool& pool, T* out, float* mean, float* rstd, const T* in, const T* weight, const T* bias,
             std::int64_t rows, std::int64_t width, float epsilon) {
  for_rows(pool, rows, width, [&](std::int64_t r) HWY_ATTR {
    forward_row(out + r * width, mean + r, rstd + r, in + r * width, weight, bias, width, epsilon);
  });
}

template <class T>
void backward(ThreadPool& pool, T* grad_in, float* grad_weight, float* grad_bias, const T* grad_out, const T* in,
              const float* mean, const float* rstd, const T* weight, std::int64_t rows, std::int64_t width,
              bool accumulate) {
  // Columns first: grad_in may lie where grad_out did.
  struct Sums {
    FloatVector weight, bias;
  };
  const Float d;
  sum_columns(
      pool, rows, width, Sums{hn::Zero(d), hn::Zero(d)},
      [&](std::int64_t r, std::int64_t c, Sums& sums, auto lanes) HWY_ATTR {
        const FloatVector g = load(d, grad_out + r * width + c, lanes);
        const FloatVector centred = hn::Sub(load(d, in + r * width + c, lanes), hn::Set(d, mean[r]));
        sums.weight = hn::MulAdd(g, hn::Mul(centred, hn::Set(d, rstd[r])), sums.weight);
        sums.bias = hn::Add(sums.bias, g);
      },
      [&](std::int64_t c, const Sums& sums, auto lanes) HWY_ATTR {
        store_gradient(grad_weight + c, sums.weight, accumulate, lanes);
        store_gradient(grad_bias + c, sums.bias, accumulate, lanes);
      });
  for_rows(pool, rows, width, [&](std::int64_t r) HWY_ATTR {
    backward_row(grad_in + r * width, grad_out + r * width, in + r * width, mean[r], rstd[r], weight, width);
  });
}

void forward_f32(ThreadPool& p, float* out, float* mean, float* rstd, const float* in, const float* w, const float* b,
                 std::int64_t rows, std::int64_t width, float epsilon) {
  forward(p, out, mean, rstd, in, w, b, rows, width, epsilon);
}
void forward_bf16(ThreadPool& p, bf16* out, float* mean, float* rstd, const bf16* in, const bf16* w, const bf16* b,
                  std::int64_t rows, std::int64_t width, float epsilon) {
  forward(p, out, mean, rstd, in, w, b, rows, width, epsilon);
}
void backward_f32(ThreadPool& p, float* dx, float* dw, float* db, const float* dy, const float* x, const float* mean,
                  const float* rstd, const float* w, std::int64_t rows, std::int64_t width, bool accumulate) {
  backward(p, dx, dw, db, dy, x, mean, rstd, w, rows, width, accumulate);
}
void backward_bf16(ThreadPool& p, bf16* dx, float* dw, float* db, const bf16* dy, const bf16* x, const float* mean,
                   const float* rstd, const bf16* w, std::int64_t rows, std::int64_t width, bool accumulate) {
  backward(p, dx, dw, db, dy, x, mean, rstd, w, rows, width, accumulate);
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
void layernorm_forward(ThreadPool& pool, T* out, float* mean, float* rstd, const T* in, const T* weight, const T* bias,
                       std::int64_t rows, std::int64_t width, float epsilon) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(forward_f32)(pool, out, mean, rstd, in, weight, bias, rows, width, epsilon);
  } else {
    HWY_DYNAMIC_DISPATCH(forward_bf16)(pool, out, mean, rstd, in, weight, bias, rows, width, epsilon);
  }
}

template <class T>
void layernorm_backward(ThreadPool& pool, T* grad_in, float* grad_weight, float* grad_bias, const T* grad_out,
                        const T* in, const float* mean, const float* rstd, const T* weight, std::int64_t rows,
                        std::int64_t width, bool accumulate) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(backward_f32)
    (pool, grad_in, grad_weight, grad_bias, grad_out, in, mean, rstd, weight, rows, width, accumulate);
  } else {
    HWY_DYNAMIC_DISPATCH(backward_bf16)
    (pool, grad_in, grad_weight, grad_bias, grad_out, in, mean, rstd, weight, rows, width, accumulate);
  }
}

#define KINTSUGI_INSTANTIATE(T)                                                                                     \
  template void layernorm_forward(ThreadPool&, T*, float*, float*, const T*, const T*, const T*, std::int64_t,      \
                                  std::int64_t, float);                                                             \
  template void layernorm_backward(ThreadPool&, T*, float*, float*, const T*, const T*, const float*, const float*, \
                                   const T*, std::int64_t, std::int64_t, bool)
KINTSUGI_INSTANTIATE(float);
KINTSUGI_INSTANTIATE(bf16);
#undef KINTSUGI_INSTANTIATE

}  // namespace kintsugi::kernels::cpu
#endif
