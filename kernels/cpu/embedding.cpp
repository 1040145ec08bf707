// Token and position embeddings. Backward scatters rows that may collide, so it is cut by columns: one thread adds all
// rows of a column block, in row order. A table that is overwritten is zeroed first with non-temporal stores: it is
// far larger than the caches and almost all of it stays zero.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>
// After it:
#include <hwy/cache_control.h>

#include <algorithm>
#include <type_traits>

#include "base/assert.hpp"
#include "kernels/cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace {

// out = table_row (+ position_row)
template <class T>
void look_up(T* out, const T* table_row, const T* position_row, std::int64_t width) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= width; i += step) {
    auto v = load(d, table_row + i);
    if (position_row != nullptr) v = hn::Add(v, load(d, position_row + i));
    store(d, v, out + i);
  }
  const auto rest = static_cast<std::size_t>(width - i);
  if (rest == 0) return;
  auto v = load_first(d, table_row + i, rest);
  if (position_row != nullptr) v = hn::Add(v, load_first(d, position_row + i, rest));
  store_first(d, v, out + i, rest);
}

template <class T>
void add_row(float* sum, const T* row, std::int64_t n) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= n; i += step) store(d, hn::Add(load(d, sum + i), load(d, row + i)), sum + i);
  const auto rest = static_cast<std::size_t>(n - i);
  if (rest > 0) store_first(d, hn::Add(load_first(d, sum + i, rest), load_first(d, row + i, rest)), sum + i, rest);
}

void zero(float* out, std::int64_t n) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i < n && reinterpret_cast<std::uintptr_t>(out + i) % (sizeof(float) * hn::Lanes(d)) != 0; ++i) out[i] = 0;
  for (; i + step <= n; i += step) hn::Stream(hn::Zero(d), d, out + i);
  for (; i < n; ++i) out[i] = 0;
  hwy::FlushStream();
}

void look_up_f32(float* out, const float* table, const float* positions, std::int64_t n) {
  look_up(out, table, positions, n);
}
void look_up_bf16(bf16* out, const bf16* table, const bf16* positions, std::int64_t n) {
  look_up(out, table, positions, n);
}
void add_row_f32(float* sum, const float* row, std::int64_t n) {
  add_row(sum, row, n);
}
void add_row_bf16(float* sum, const bf16* row, std::int64_t n) {
  add_row(sum, row, n);
}

}  // namespace
}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace kintsugi::kernels::cpu {

HWY_EXPORT(look_up_f32);
HWY_EXPORT(look_up_bf16);
HWY_EXPORT(add_row_f32);
HWY_EXPORT(add_row_bf16);
HWY_EXPORT(zero);

namespace {

constexpr std::int64_t kColumns = 64;            // a column block of backward: four cache lines a row
constexpr std::int64_t kPositions = 16;          // positions a piece of backward
constexpr std::int64_t kZeroPiece = 256 * 1024;  // 1 MiB

template <class T>
void add(float* sum, const T* row, std::int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(add_row_f32)(sum, row, n);
  } else {
    HWY_DYNAMIC_DISPATCH(add_row_bf16)(sum, row, n);
  }
}

void zero_all(ThreadPool& pool, float* out, std::int64_t count) {
  pool.run((count + kZeroPiece - 1) / kZeroPiece, [=](std::int64_t piece) {
    const std::int64_t first = piece * kZeroPiece;
    HWY_DYNAMIC_DISPATCH(zero)(out + first, std::min(kZeroPiece, count - first));
  });
}

// grad (+)= the sum over sequences, complete before it is added.
template <class T>
void position_gradient(float* grad, const T* grad_out, std::int64_t position, std::int64_t rows, std::int64_t width,
                       std::int64_t length, bool accumulate) {
  float sum[kColumns];
  for (std::int64_t c = 0; c < width; c += kColumns) {
    const std::int64_t n = std::min(kColumns, width - c);
    std::fill(sum, sum + n, 0.0f);
    for (std::int64_t r = position; r < rows; r += length) add(sum, grad_out + r * width + c, n);
    float* to = grad + position * width + c;
    if (accumulate) {
      add(to, sum, n);
    } else {
      std::copy(sum, sum + n, to);
    }
  }
}

}  // namespace

template <class T>
void embedding_forward(ThreadPool& pool, T* out, const std::int32_t* tokens, const T* table, const T* positions,
                       std::int64_t rows, std::int64_t vocabulary, std::int64_t width, std::int64_t length) {
  const std::int64_t block = std::max<std::int64_t>(1, 16384 / width);
  pool.run((rows + block - 1) / block, [=](std::int64_t piece) {
    for (std::int64_t r = piece * block; r < std::min(rows, (piece + 1) * block); ++r) {
      KINTSUGI_ASSERT_MSG(tokens[r] >= 0 && tokens[r] < vocabulary, "a token lies outside the vocabulary");
      const T* position = positions == nullptr ? nullptr : positions + (r % length) * width;
      if constexpr (std::is_same_v<T, float>) {
        HWY_DYNAMIC_DISPATCH(look_up_f32)(out + r * width, table + tokens[r] * width, position, width);
      } else {
        HWY_DYNAMIC_DISPATCH(look_up_bf16)(out + r * width, table + tokens[r] * width, position, width);
      }
    }
  });
}

template <class T>
void embedding_backward(ThreadPool& pool, float* grad_table, float* grad_positions, const T* grad_out,
                        const std::int32_t* tokens, std::int64_t rows, std::int64_t vocabulary, std::int64_t width,
                        std::int64_t length, std::int64_t position_rows, bool accumulate) {
  KINTSUGI_ASSERT(grad_positions == nullptr || position_rows >= length);
  const std::int64_t position_pieces = grad_positions == nullptr ? 0 : (length + kPositions - 1) / kPositions;
  if (!accumulate) {
    zero_all(pool, grad_table, vocabulary * width);
    if (position_pieces > 0) zero_all(pool, grad_positions + length * width, (position_rows - length) * width);
  }
  const std::int64_t column_pieces = (width + kColumns - 1) / kColumns;
  pool.run(column_pieces + position_pieces, [=](std::int64_t piece) {
    if (piece < column_pieces) {
      const std::int64_t c = piece * kColumns;
      const std::int64_t n = std::min(kColumns, width - c);
      for (std::int64_t r = 0; r < rows; ++r) {
        KINTSUGI_ASSERT_MSG(tokens[r] >= 0 && tokens[r] < vocabulary, "a token lies outside the vocabulary");
        add(grad_table + tokens[r] * width + c, grad_out + r * width + c, n);
      }
      return;
    }
    const std::int64_t first = (piece - column_pieces) * kPositions;
    for (std::int64_t p = first; p < std::min(length, first + kPositions); ++p) {
      position_gradient(grad_positions, grad_out, p, rows, width, length, accumulate);
    }
  });
}

template void embedding_forward(ThreadPool&, float*, const std::int32_t*, const float*, const float*, std::int64_t,
                                std::int64_t, std::int64_t, std::int64_t);
template void embedding_forward(ThreadPool&, bf16*, const std::int32_t*, const bf16*, const bf16*, std::int64_t,
                                std::int64_t, std::int64_t, std::int64_t);
template void embedding_backward(ThreadPool&, float*, float*, const float*, const std::int32_t*, std::int64_t,
                                 std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool);
template void embedding_backward(ThreadPool&, float*, float*, const bf16*, const std::int32_t*, std::int64_t,
                                 std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool);

}  // namespace kintsugi::kernels::cpu
#endif
