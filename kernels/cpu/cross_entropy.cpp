// Softmax cross-entropy over rows of logits, fused with its gradient. A row is a piece: read once from memory, then
// worked in the second-level cache (maximum; exponentials and their sum; gradient), written back once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
// After it:
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/assert.hpp"
#include "kernels/cpu/exp-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace {

template <class T>
float row_maximum(const T* row, std::int64_t n) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto m0 = lowest, m1 = lowest, m2 = lowest, m3 = lowest;
  std::int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    m0 = hn::Max(m0, load(d, row + i));
    m1 = hn::Max(m1, load(d, row + i + step));
    m2 = hn::Max(m2, load(d, row + i + 2 * step));
    m3 = hn::Max(m3, load(d, row + i + 3 * step));
  }
  for (; i < n; i += step) {
    const auto rest = static_cast<std::size_t>(std::min(step, n - i));
    m0 = hn::Max(m0, hn::IfThenElse(hn::FirstN(d, rest), load_first(d, row + i, rest), lowest));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

// Sum of e^(x - maximum) in four running vectors. `keep` leaves the exponentials in a float32 row; a bfloat16 row would
// round them, so there the gradient computes them again.
template <class T>
float row_exponentials(const T* row, float* keep, std::int64_t n, float maximum) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const auto shift = hn::Set(d, maximum);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  const auto next = [&](std::int64_t at) HWY_ATTR {
    const auto e = exp_nonpositive(d, hn::Sub(load(d, row + at), shift));
    if (keep != nullptr) store(d, e, keep + at);
    return e;
  };
  std::int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    s0 = hn::Add(s0, next(i));
    s1 = hn::Add(s1, next(i + step));
    s2 = hn::Add(s2, next(i + 2 * step));
    s3 = hn::Add(s3, next(i + 3 * step));
  }
  for (; i < n; i += step) {
    const auto rest = static_cast<std::size_t>(std::min(step, n - i));
    const auto e = exp_nonpositive(d, hn::Sub(load_first(d, row + i, rest), shift));
    if (keep != nullptr) store_first(d, e, keep + i, rest);
    s0 = hn::Add(s0, hn::IfThenElseZero(hn::FirstN(d, rest), e));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

HWY_INLINE void scale_row(float* row, std::int64_t n, float /*maximum*/, float factor) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, factor);
  std::int64_t i = 0;
  for (; i + step <= n; i += step) store(d, hn::Mul(load(d, row + i), by), row + i);
  for (; i < n; ++i) row[i] *= factor;
}

HWY_INLINE void scale_row(bf16* row, std::int64_t n, float maximum, float factor) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, factor);
  const auto shift = hn::Set(d, maximum);
  std::int64_t i = 0;
  for (; i + step <= n; i += step) {
    store(d, hn::Mul(exp_nonpositive(d, hn::Sub(load(d, row + i), shift)), by), row + i);
  }
  const auto rest = static_cast<std::size_t>(n - i);
  if (rest == 0) return;
  store_first(d, hn::Mul(exp_nonpositive(d, hn::Sub(load_first(d, row + i, rest), shift)), by), row + i, rest);
}

template <class T>
float row_loss(const T* row, std::int32_t target, std::int64_t n) {
  const float maximum = row_maximum(row, n);
  const float total = row_exponentials(row, static_cast<float*>(nullptr), n, maximum);
  return std::log(total) - (load_one(row + target) - maximum);
}

template <class T>
float row_loss_and_gradient(T* row, std::int32_t target, std::int64_t n, float scale) {
  const Float d;
  const float maximum = row_maximum(row, n);
  const float below = load_one(row + target) - maximum;
  float* keep = nullptr;
  if constexpr (std::is_same_v<T, float>) keep = row;
  const float total = row_exponentials(row, keep, n, maximum);
  scale_row(row, n, maximum, scale / total);
  // The target's own entry again, so that it too is rounded to T only once.
  const float probability = hn::GetLane(exp_nonpositive(d, hn::Set(d, below))) / total;
  store_first(d, hn::Set(d, (probability - 1.0f) * scale), row + target, 1);
  return std::log(total) - below;
}

float row_loss_f32(const float* row, std::int32_t target, std::int64_t n) {
  return row_loss(row, target, n);
}
float row_loss_bf16(const bf16* row, std::int32_t target, std::int64_t n) {
  return row_loss(row, target, n);
}
float row_both_f32(float* row, std::int32_t target, std::int64_t n, float scale) {
  return row_loss_and_gradient(row, target, n, scale);
}
float row_both_bf16(bf16* row, std::int32_t target, std::int64_t n, float scale) {
  return row_loss_and_gradient(row, target, n, scale);
}

}  // namespace
}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kintsugi::kernels::cpu {

HWY_EXPORT(row_loss_f32);
HWY_EXPORT(row_loss_bf16);
HWY_EXPORT(row_both_f32);
HWY_EXPORT(row_both_bf16);

namespace {

// Calls row(r) for every row, in pieces of about 16384 logits.
template <class Row>
void for_rows(ThreadPool& pool, std::int64_t rows, std::int64_t vocabulary, const std::int32_t* targets, Row row) {
  const std::int64_t block = std::max<std::int64_t>(1, 16384 / vocabulary);
  pool.run((rows + block - 1) / block, [=](std::int64_t piece) {
    for (std::int64_t r = piece * block; r < std::min(rows, (piece + 1) * block); ++r) {
      KINTSUGI_ASSERT_MSG(targets[r] >= 0 && targets[r] < vocabulary, "a target lies outside the vocabulary");
      row(r);
    }
  });
}

}  // namespace

template <class T>
void cross_entropy(ThreadPool& pool, float* losses, T* logits, const std::int32_t* targets, std::int64_t rows,
                   std::int64_t vocabulary, float scale) {
  for_rows(pool, rows, vocabulary, targets, [=](std::int64_t r) {
    T* row = logits + r * vocabulary;
    if constexpr (std::is_same_v<T, float>) {
      losses[r] = HWY_DYNAMIC_DISPATCH(row_both_f32)(row, targets[r], vocabulary, scale);
    } else {
      losses[r] = HWY_DYNAMIC_DISPATCH(row_both_bf16)(row, targets[r], vocabulary, scale);
    }
  });
}

template <class T>
void cross_entropy_forward(ThreadPool& pool, float* losses, const T* logits, const std::int32_t* targets,
                           std::int64_t rows, std::int64_t vocabulary) {
  for_rows(pool, rows, vocabulary, targets, [=](std::int64_t r) {
    const T* row = logits + r * vocabulary;
    if constexpr (std::is_same_v<T, float>) {
      losses[r] = HWY_DYNAMIC_DISPATCH(row_loss_f32)(row, targets[r], vocabulary);
    } else {
      losses[r] = HWY_DYNAMIC_DISPATCH(row_loss_bf16)(row, targets[r], vocabulary);
    }
  });
}

template void cross_entropy(ThreadPool&, float*, float*, const std::int32_t*, std::int64_t, std::int64_t, float);
template void cross_entropy(ThreadPool&, float*, bf16*, const std::int32_t*, std::int64_t, std::int64_t, float);
template void cross_entropy_forward(ThreadPool&, float*, const float*, const std::int32_t*, std::int64_t, std::int64_t);
template void cross_entropy_forward(ThreadPool&, float*, const bf16*, const std::int32_t*, std::int64_t, std::int64_t);

}  // namespace kintsugi::kernels::cpu
#endif
