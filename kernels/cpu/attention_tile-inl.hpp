// What both directions of attention are made of: packing a head's rows into float32 tiles, and small matrix products on
// them. All tiles are 64-byte aligned, have kAttentionTile rows (zeros past the end of the sequence) and padded widths,
// so the products need no masks. Like Highway's own -inl headers this is compiled once a target.
#if defined(KINTSUGI_KERNELS_CPU_ATTENTION_TILE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef KINTSUGI_KERNELS_CPU_ATTENTION_TILE_INL_HPP
#undef KINTSUGI_KERNELS_CPU_ATTENTION_TILE_INL_HPP
#else
#define KINTSUGI_KERNELS_CPU_ATTENTION_TILE_INL_HPP
#endif

#include <algorithm>

#include "kernels/cpu/attention_piece.hpp"
#include "kernels/cpu/exp-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kTile = kAttentionTile;
constexpr std::int64_t kWidthStep = 16;  // a width is padded to whole vectors of any target
constexpr std::int64_t kRowBlock = 4;    // rows of a product that share each load from the right
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
constexpr int kVectors = 4;  // 4 x 4 running sums: enough to hide the latency of two multiply-add units
#else
constexpr int kVectors = 2;
#endif

// Which part of a product is not zero when one operand is the diagonal tile of scores (row >= column).
enum class Triangle : std::uint8_t {
  none,
  columns_to_row,  // the target is the triangle: only columns <= row are wanted
  depth_to_row,    // left is the triangle: a(m, k) = 0 for k > m
  depth_from_row,  // left is its transpose: a(m, k) = 0 for k < m
};

// a(m, k) is at[m * row + k * depth]: a tile or its transpose.
struct Left {
  const float* at;
  std::int64_t row;
  std::int64_t depth;
};

struct Right {
  const float* at;
  std::int64_t row;
};

struct Target {
  float* at;
  std::int64_t row;
  bool accumulate;
};

struct Sizes {
  std::int64_t rows;  // counts up to a multiple of kRowBlock
  std::int64_t depth;
  std::int64_t columns;  // a multiple of kWidthStep
};

// kRowBlock rows from m, N vectors of columns from n, depth [begin, end).
template <int N>
HWY_INLINE void panel(const Target& to, const Left& left, const Right& right, std::int64_t m, std::int64_t n,
                      std::int64_t begin, std::int64_t end) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  FloatVector sum[kRowBlock][N];
  float* const c = to.at + m * to.row + n;
#pragma GCC unroll 4
  for (int r = 0; r < kRowBlock; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) sum[r][v] = to.accumulate ? hn::Load(d, c + r * to.row + v * step) : hn::Zero(d);
  }
  const float* a = left.at + m * left.row + begin * left.depth;
  const float* b = right.at + begin * right.row + n;
  for (std::int64_t k = begin; k < end; ++k, a += left.depth, b += right.row) {
    FloatVector row[N];
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) row[v] = hn::Load(d, b + v * step);
#pragma GCC unroll 4
    for (int r = 0; r < kRowBlock; ++r) {
      const auto factor = hn::Set(d, a[r * left.row]);
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) sum[r][v] = hn::MulAdd(factor, row[v], sum[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRowBlock; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) hn::Store(sum[r][v], d, c + r * to.row + v * step);
  }
}

// to (rows, columns) = or += left (rows, depth) * right (depth, columns). Each element is one chain over depth.
void multiply(const Target& to, const Left& left, const Right& right, Sizes size, Triangle triangle) {
  const auto step = static_cast<std::int64_t>(hn::Lanes(Float{}));
  for (std::int64_t m = 0; m < size.rows; m += kRowBlock) {
    const std::int64_t last = m + kRowBlock;  // one past the last row of the block
    const std::int64_t begin = triangle == Triangle::depth_from_row ? m : 0;
    const std::int64_t end = triangle == Triangle::depth_to_row ? std::min(size.depth, last) : size.depth;
    const std::int64_t columns = triangle == Triangle::columns_to_row ? std::min(size.columns, last) : size.columns;
    std::int64_t n = 0;
    for (; n + kVectors * step <= columns; n += kVectors * step) panel<kVectors>(to, left, right, m, n, begin, end);
    if (kVectors == 4 && n + 2 * step <= columns) {
      panel<2>(to, left, right, m, n, begin, end);
      n += 2 * step;
    }
    for (; n < columns; n += step) panel<1>(to, left, right, m, n, begin, end);
  }
}

// to (kTile, width) = from (rows, head_dim) * scale, zeros around it.
template <class T>
void pack_rows(float* to, std::int64_t width, const T* from, std::int64_t stride, std::int64_t rows,
               std::int64_t head_dim, float scale) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, scale);
  for (std::int64_t r = 0; r < rows; ++r) {
    float* const row = to + r * width;
    std::int64_t i = 0;
    for (; i + step <= head_dim; i += step) hn::Store(hn::Mul(load(d, from + r * stride + i), by), d, row + i);
    if (i < head_dim) {
      const auto rest = static_cast<std::size_t>(head_dim - i);
      hn::Store(hn::Mul(load_first(d, from + r * stride + i, rest), by), d, row + i);
      i += step;
    }
    std::fill(row + std::min(i, width), row + width, 0.0f);
  }
  std::fill(to + rows * width, to + kTile * width, 0.0f);
}

// to (width, kTile) = the transpose of from (kTile, width).
HWY_INLINE void transpose(float* to, const float* from, std::int64_t width) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t r = 0; r < kTile; ++r) {
    for (std::int64_t c = 0; c < width; ++c) to[c * kTile + r] = from[r * width + c];
  }
#else
  const hn::FixedTag<float, 4> d;
  for (std::int64_t c = 0; c < width; c += 4) {
    for (std::int64_t r = 0; r < kTile; r += 4) {
      const float* const at = from + r * width + c;
      const auto row0 = hn::Load(d, at), row1 = hn::Load(d, at + width);
      const auto row2 = hn::Load(d, at + 2 * width), row3 = hn::Load(d, at + 3 * width);
      const auto low02 = hn::InterleaveLower(d, row0, row2), low13 = hn::InterleaveLower(d, row1, row3);
      const auto high02 = hn::InterleaveUpper(d, row0, row2), high13 = hn::InterleaveUpper(d, row1, row3);
      float* const out = to + c * kTile + r;
      hn::Store(hn::InterleaveLower(d, low02, low13), d, out);
      hn::Store(hn::InterleaveUpper(d, low02, low13), d, out + kTile);
      hn::Store(hn::InterleaveLower(d, high02, high13), d, out + 2 * kTile);
      hn::Store(hn::InterleaveUpper(d, high02, high13), d, out + 3 * kTile);
    }
  }
#endif
}

// to[0, head_dim) = row * factor, rounded to T.
template <class T>
HWY_INLINE void store_row(T* to, const float* row, std::int64_t head_dim, float factor) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, factor);
  std::int64_t i = 0;
  for (; i + step <= head_dim; i += step) store(d, hn::Mul(hn::Load(d, row + i), by), to + i);
  const auto rest = static_cast<std::size_t>(head_dim - i);
  if (rest > 0) store_first(d, hn::Mul(hn::Load(d, row + i), by), to + i, rest);
}

// Columns [c, c + Lanes) of row r of a diagonal tile that are not after the diagonal.
HWY_INLINE hn::Mask<Float> causal_mask(Float d, std::int64_t r, std::int64_t c) {
  return hn::FirstN(d, static_cast<std::size_t>(std::max<std::int64_t>(0, r + 1 - c)));
}

}  // namespace
}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
