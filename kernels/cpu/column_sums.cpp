#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/column_sums.cpp"
#include <hwy/foreach_target.h>
// Highway's order: this header after foreach_target.
#include <hwy/highway.h>

#include <cstring>
#include <type_traits>

#include "kernels/cpu/column_sums.hpp"
#include "kernels/cpu/rows-inl.hpp"
#include "kernels/cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace {

template <class T>
void column_sums_any(ThreadPool& pool, float* sums, const T* in, std::int64_t rows, std::int64_t columns,
                     bool accumulate) {
  const Float d;
  sum_columns(
      pool, rows, columns, hn::Zero(d),
      [&](std::int64_t r, std::int64_t c, FloatVector& total, auto lanes)
          HWY_ATTR { total = hn::Add(total, load(d, in + r * columns + c, lanes)); },
      [&](std::int64_t c, const FloatVector& total, auto lanes)
          HWY_ATTR { store_gradient(sums + c, total, accumulate, lanes); });
}

void column_sums_f32(ThreadPool& p, float* sums, const float* in, std::int64_t rows, std::int64_t columns, bool add) {
  column_sums_any(p, sums, in, rows, columns, add);
}
void column_sums_bf16(ThreadPool& p, float* sums, const bf16* in, std::int64_t rows, std::int64_t columns, bool add) {
  column_sums_any(p, sums, in, rows, columns, add);
}

}  // namespace
}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kintsugi::kernels::cpu {

HWY_EXPORT(column_sums_f32);
HWY_EXPORT(column_sums_bf16);

template <class T>
void column_sums(ThreadPool& pool, float* sums, const T* in, std::int64_t rows, std::int64_t columns, bool accumulate) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(column_sums_f32)(pool, sums, in, rows, columns, accumulate);
  } else {
    HWY_DYNAMIC_DISPATCH(column_sums_bf16)(pool, sums, in, rows, columns, accumulate);
  }
}

template void column_sums(ThreadPool&, float*, const float*, std::int64_t, std::int64_t, bool);
template void column_sums(ThreadPool&, float*, const bf16*, std::int64_t, std::int64_t, bool);

void repeat_row(float* out, const float* row, std::int64_t rows, std::int64_t columns, std::int64_t out_stride) {
  const std::size_t bytes = static_cast<std::size_t>(columns) * sizeof(float);
  for (std::int64_t r = 0; r < rows; ++r) std::memcpy(out + r * out_stride, row, bytes);
}

}  // namespace kintsugi::kernels::cpu
#endif
