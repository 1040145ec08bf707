// How kernels over (rows, width) matrices are cut and summed. Compiled once a target, like simd-inl.hpp.
#if defined(KINTSUGI_KERNELS_CPU_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef KINTSUGI_KERNELS_CPU_ROWS_INL_HPP
#undef KINTSUGI_KERNELS_CPU_ROWS_INL_HPP
#else
#define KINTSUGI_KERNELS_CPU_ROWS_INL_HPP
#endif

#include <algorithm>

#include "base/units.hpp"
#include "kernels/cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {

HWY_INLINE FloatVector keep(Float, FloatVector v, Whole) {
  return v;
}
// Lanes that do not count become zero.
HWY_INLINE FloatVector keep(Float d, FloatVector v, Part part) {
  return hn::IfThenElseZero(hn::FirstN(d, part.n), v);
}

// The sum over [0, width) of what value(i, lanes) gives; lanes that do not count must be zero there. Four running sums
// of a vector each: float32, close to pairwise.
template <class Value>
HWY_INLINE float sum_vectors(std::int64_t width, const Value& value) {
  const Float d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FloatVector s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 4 * lanes <= width; i += 4 * lanes) {
    s0 = hn::Add(s0, value(i, Whole{}));
    s1 = hn::Add(s1, value(i + lanes, Whole{}));
    s2 = hn::Add(s2, value(i + 2 * lanes, Whole{}));
    s3 = hn::Add(s3, value(i + 3 * lanes, Whole{}));
  }
  for (; i + lanes <= width; i += lanes) s0 = hn::Add(s0, value(i, Whole{}));
  if (i < width) s1 = hn::Add(s1, value(i, Part{static_cast<std::size_t>(width - i)}));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// body(row) for all rows, in pieces of about 16 Ki elements.
template <class Body>
HWY_INLINE void for_rows(ThreadPool& pool, std::int64_t rows, std::int64_t width, const Body& body) {
  const std::int64_t piece_rows = std::max<std::int64_t>(1, (std::int64_t{1} << 14) / width);
  pool.run(ceil_div(rows, piece_rows), [&](std::int64_t piece) HWY_ATTR {
    const std::int64_t end = std::min((piece + 1) * piece_rows, rows);
    for (std::int64_t r = piece * piece_rows; r < end; ++r) body(r);
  });
}

// Sums down the rows for every column, in row order, by pieces of columns. `Sums` holds a vector for each sum a column
// has; add(row, column, sums, lanes) adds a row's share to it, store(column, sums, lanes) takes it when complete.
// Four vectors of columns go down together: whole cache lines, and additions that do not wait for one another.
template <class Sums, class Add, class Store>
HWY_INLINE void sum_columns(ThreadPool& pool, std::int64_t rows, std::int64_t width, Sums zero, const Add& add,
                            const Store& store_sums) {
  constexpr std::int64_t kColumns = 64;
  pool.run(ceil_div(width, kColumns), [&](std::int64_t piece) HWY_ATTR {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(Float{}));
    const std::int64_t end = std::min((piece + 1) * kColumns, width);
    std::int64_t c = piece * kColumns;
    for (; c + 4 * lanes <= end; c += 4 * lanes) {
      Sums s0 = zero, s1 = zero, s2 = zero, s3 = zero;
      for (std::int64_t r = 0; r < rows; ++r) {
        add(r, c, s0, Whole{});
        add(r, c + lanes, s1, Whole{});
        add(r, c + 2 * lanes, s2, Whole{});
        add(r, c + 3 * lanes, s3, Whole{});
      }
      store_sums(c, s0, Whole{});
      store_sums(c + lanes, s1, Whole{});
      store_sums(c + 2 * lanes, s2, Whole{});
      store_sums(c + 3 * lanes, s3, Whole{});
    }
    for_vectors(c, end, [&](std::int64_t column, auto counted) HWY_ATTR {
      Sums sums = zero;
      for (std::int64_t r = 0; r < rows; ++r) add(r, column, sums, counted);
      store_sums(column, sums, counted);
    });
  });
}

// Stores or adds a finished column sum.
template <class Lanes>
HWY_INLINE void store_gradient(float* to, FloatVector sum, bool accumulate, Lanes lanes) {
  const Float d;
  store(d, accumulate ? hn::Add(load(d, to, lanes), sum) : sum, to, lanes);
}

}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
