// Matrix products in float32, blocked and packed as in Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication" (2008), section 4, with the operands' roles of BLIS (Van Zee and van de Geijn 2015): a block of `a`
// lies packed in the second cache, a strip of `b` in the first, a tile of `out` in registers.
//
// The order of addition is written down: over a block of kDepth products one chain of fused multiply-adds in order;
// blocks are added to `out` in order. So an element's bits are a function of its row of a, its column of b and its
// start: not of tiles, panels, strides, the number of rows, or (where multiply-adds are fused) the ISA.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/product.cpp"
#include <hwy/foreach_target.h>
// Highway's order: this header after foreach_target.
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"
#include "base/result.hpp"
#include "base/units.hpp"
#include "kernels/cpu/cpu_memory.hpp"
#include "kernels/cpu/matmul.hpp"
#include "kernels/cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace {

// A tile of `out` is kTileRows by kTileVectors vectors: as many sums as registers hold beside a row of b and one of a.
#if HWY_TARGET <= HWY_AVX3
constexpr std::int64_t kTileRows = 8;
#else
constexpr std::int64_t kTileRows = 4;
#endif
constexpr std::int64_t kTileVectors = 3;
constexpr std::int64_t kLanes = hn::MaxLanes(Float{});
constexpr std::int64_t kTileColumns = kTileVectors * kLanes;
constexpr std::int64_t kLine = 16;  // floats of a cache line

// Measured on Xeon with AVX-512: a strip of b (36 KiB), one of a and a tile share the first cache.
constexpr std::int64_t kDepth = 192;       // part of the definition
constexpr std::int64_t kBlockRows = 1024;  // of a: 768 KiB
constexpr std::int64_t kRun = 16;          // products between which something is fetched
constexpr std::int64_t kLateColumns = 256; // of a block: meanwhile the next block of a is fetched
constexpr std::int64_t kStripAhead = 128;  // floats of packed a

// to[k * width + i] = from[i * stride + k] for four i.
HWY_INLINE void transpose_four(float* to, std::int64_t width, const float* from, std::int64_t stride,
                               std::int64_t depth) {
  std::int64_t k = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  for (; k + 4 <= depth; k += 4) {
    const auto r0 = hn::LoadU(d, from + k), r1 = hn::LoadU(d, from + stride + k);
    const auto r2 = hn::LoadU(d, from + 2 * stride + k), r3 = hn::LoadU(d, from + 3 * stride + k);
    const auto low02 = hn::InterleaveLower(d, r0, r2), low13 = hn::InterleaveLower(d, r1, r3);
    const auto high02 = hn::InterleaveUpper(d, r0, r2), high13 = hn::InterleaveUpper(d, r1, r3);
    hn::StoreU(hn::InterleaveLower(d, low02, low13), d, to + k * width);
    hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, to + (k + 1) * width);
    hn::StoreU(hn::InterleaveLower(d, high02, high13), d, to + (k + 2) * width);
    hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, to + (k + 3) * width);
  }
#endif
  for (; k < depth; ++k) {
    for (std::int64_t i = 0; i < 4; ++i) to[k * width + i] = from[i * stride + k];
  }
}

// to (depth, kWidth) = the strip of `count` <= kWidth columns of an operand whose element (k, i) is from[k * stride + i],
// or from[i * stride + k] when `columns_apart`; zero beyond `count`.
template <std::int64_t kWidth>
HWY_INLINE void pack_strip(float* to, const float* from, std::int64_t stride, bool columns_apart, std::int64_t depth,
                           std::int64_t count) {
  if (count == kWidth && columns_apart && kWidth % 4 == 0) {
    for (std::int64_t i = 0; i < kWidth; i += 4) transpose_four(to + i, kWidth, from + i * stride, stride, depth);
  } else if (count == kWidth && !columns_apart) {
    for (std::int64_t k = 0; k < depth; ++k) std::memcpy(to + k * kWidth, from + k * stride, kWidth * sizeof(float));
  } else {
    const std::int64_t along = columns_apart ? stride : 1, down = columns_apart ? 1 : stride;
    for (std::int64_t k = 0; k < depth; ++k) {
      for (std::int64_t i = 0; i < kWidth; ++i) to[k * kWidth + i] = i < count ? from[i * along + k * down] : 0.0f;
    }
  }
}

// Brings the memory that a later pack_strip reads into the second cache, a few lines between tiles: packing is then
// bound by the cache, and memory works while sums are formed.
class Ahead {
 public:
  Ahead() = default;
  // The part of an operand as in pack_strip, fetched in `calls` calls of some().
  Ahead(const float* from, std::int64_t stride, bool columns_apart, std::int64_t depth, std::int64_t count,
        std::int64_t calls)
      : from_(from), stride_(stride), rows_(columns_apart ? count : depth), length_(columns_apart ? depth : count) {
    lines_ = ceil_div(length_, kLine) + 1;  // wherever in a line a row begins
    each_ = ceil_div(rows_ * lines_, calls);
  }
  HWY_INLINE void some() {
    for (std::int64_t i = 0; i < each_ && row_ < rows_; ++i) {
      const float* const line = from_ + row_ * stride_ + std::min(line_ * kLine, length_ - 1);
      __builtin_prefetch(line, 0, 2);
      if (++line_ == lines_) line_ = 0, ++row_;
    }
  }

 private:
  const float* from_ = nullptr;
  std::int64_t stride_ = 0, rows_ = 0, length_ = 0, lines_ = 0, each_ = 0;
  std::int64_t row_ = 0, line_ = 0;
};

struct Tile {
  float* out;  // (kTileRows, kTileColumns) at out_stride
  std::int64_t out_stride;
  const float* bias;  // (kTileColumns): what the sums are added to; nullptr: to out, if `accumulate`, or nothing
  bool accumulate;
};

// a: (depth, kTileRows), b: (depth, kTileColumns), packed. Between runs of products a little of what comes next, and of
// the tile itself, is fetched.
HWY_INLINE void multiply_tile(const Tile& tile, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                              std::int64_t depth, Ahead& next_a, Ahead& next_b) {
  const Float d;
  FloatVector sums[kTileRows][kTileVectors];
#pragma GCC unroll 16
  for (auto& row : sums) {
#pragma GCC unroll 16
    for (auto& sum : row) sum = hn::Zero(d);
  }
  const float* row_ahead = tile.out;
  const float* const rows_end = tile.out + kTileRows * tile.out_stride;
  for (std::int64_t k = 0; k < depth;) {
    const std::int64_t end = std::min(k + kRun, depth);
    for (int i = 0; i < 2 && row_ahead < rows_end; ++i, row_ahead += tile.out_stride) {
      for (std::int64_t j = 0; j < kTileColumns; j += kLine) __builtin_prefetch(row_ahead + j, 1, 3);
    }
    next_b.some();
    next_a.some();
    for (; k < end; ++k) {
      __builtin_prefetch(a + kStripAhead, 0, 3);
      FloatVector column[kTileVectors];
#pragma GCC unroll 16
      for (std::int64_t j = 0; j < kTileVectors; ++j) column[j] = hn::Load(d, b + j * kLanes);
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < kTileRows; ++i) {
        const FloatVector x = hn::Set(d, a[i]);
#pragma GCC unroll 16
        for (std::int64_t j = 0; j < kTileVectors; ++j) sums[i][j] = hn::MulAdd(x, column[j], sums[i][j]);
      }
      a += kTileRows;
      b += kTileColumns;
    }
  }
  float* to = tile.out;
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 16
    for (std::int64_t j = 0; j < kTileVectors; ++j) {
      FloatVector sum = sums[i][j];
      if (tile.bias != nullptr) sum = hn::Add(hn::LoadU(d, tile.bias + j * kLanes), sum);
      else if (tile.accumulate) sum = hn::Add(hn::LoadU(d, to + j * kLanes), sum);
      hn::StoreU(sum, d, to + j * kLanes);
    }
    to += tile.out_stride;
  }
}

// A tile that reaches over the edge of `out` is computed beside it.
HWY_NOINLINE void multiply_edge(const Tile& tile, const float* a, const float* b, std::int64_t depth,
                                std::int64_t rows, std::int64_t columns) {
  HWY_ALIGN float beside[kTileRows * kTileColumns] = {};
  HWY_ALIGN float bias[kTileColumns] = {};
  if (tile.bias != nullptr) std::copy_n(tile.bias, columns, bias);
  if (tile.accumulate) {
    for (std::int64_t i = 0; i < rows; ++i) {
      std::copy_n(tile.out + i * tile.out_stride, columns, beside + i * kTileColumns);
    }
  }
  Ahead none;
  multiply_tile({beside, kTileColumns, tile.bias == nullptr ? nullptr : bias, tile.accumulate}, a, b, depth, none, none);
  for (std::int64_t i = 0; i < rows; ++i) {
    std::copy_n(beside + i * kTileColumns, columns, tile.out + i * tile.out_stride);
  }
}

struct Packed {
  HWY_ALIGN float a[kBlockRows * kDepth];
  HWY_ALIGN float b[kTileColumns * kDepth];
};

// One block: products [k0, k0 + depth) of at most kBlockRows rows.
struct Block {
  float* out;
  Operand<float> a, b;  // from product k0 on
  const float* bias;
  bool accumulate;
  std::int64_t rows, columns, depth, out_stride;

  const float* a_strip(std::int64_t r) const { return a.data + (a.transposed ? r : r * a.stride); }
  const float* b_strip(std::int64_t c) const { return b.data + (b.transposed ? c * b.stride : c); }
  std::int64_t runs() const { return ceil_div(rows, kTileRows) * (kDepth / kRun); }  // in a strip of b
  Ahead ahead_of_b(std::int64_t c) const {
    if (c >= columns) return {};
    return {b_strip(c), b.stride, b.transposed, depth, std::min(kTileColumns, columns - c), runs()};
  }
  // The same rows of a, `depth` products further on.
  Ahead ahead_of_a(std::int64_t next_depth) const {
    if (next_depth <= 0) return {};
    const std::int64_t strips = ceil_div(std::min(kLateColumns, columns), kTileColumns);
    return {a.data + (a.transposed ? depth * a.stride : depth), a.stride, !a.transposed, next_depth, rows,
            runs() * strips};
  }
};

void pack_rows(Packed& packed, const Block& block) {
  for (std::int64_t r = 0; r < block.rows; r += kTileRows) {
    if (const std::int64_t next = r + 2 * kTileRows; next < block.rows) {
      Ahead(block.a_strip(next), block.a.stride, !block.a.transposed, block.depth,
            std::min(kTileRows, block.rows - next), 1).some();
    }
    pack_strip<kTileRows>(packed.a + r * block.depth, block.a_strip(r), block.a.stride, !block.a.transposed,
                          block.depth, std::min(kTileRows, block.rows - r));
  }
}

void multiply_block(Packed& packed, const Block& block, std::int64_t next_depth) {
  pack_rows(packed, block);
  Ahead nothing, next_a = block.ahead_of_a(next_depth);
  for (std::int64_t c = 0; c < block.columns; c += kTileColumns) {
    const std::int64_t columns = std::min(kTileColumns, block.columns - c);
    pack_strip<kTileColumns>(packed.b, block.b_strip(c), block.b.stride, block.b.transposed, block.depth, columns);
    Ahead next_b = block.ahead_of_b(c + kTileColumns);
    Ahead& late = c + kLateColumns >= block.columns ? next_a : nothing;
    for (std::int64_t r = 0; r < block.rows; r += kTileRows) {
      const Tile tile{block.out + r * block.out_stride + c, block.out_stride,
                      block.bias == nullptr ? nullptr : block.bias + c, block.accumulate};
      const std::int64_t rows = std::min(kTileRows, block.rows - r);
      const float* const a = packed.a + r * block.depth;
      if (rows == kTileRows && columns == kTileColumns) multiply_tile(tile, a, packed.b, block.depth, late, next_b);
      else multiply_edge(tile, a, packed.b, block.depth, rows, columns);
    }
  }
}

void multiply_panel(Packed& packed, float* out, const Operand<float>& a, const Operand<float>& b, const float* bias,
                    bool accumulate, const PanelShape& s) {
  for (std::int64_t r = 0; r < s.rows; r += kBlockRows) {
    for (std::int64_t k = 0; k < s.depth; k += kDepth) {
      const std::int64_t depth = std::min(kDepth, s.depth - k);
      const float* const left = a.data + (a.transposed ? k * a.stride + r : r * a.stride + k);
      const float* const right = b.data + (b.transposed ? k : k * b.stride);
      const Block block{out + r * s.out_stride,
                        {left, a.stride, a.transposed},
                        {right, b.stride, b.transposed},
                        k == 0 ? bias : nullptr,
                        accumulate || k > 0,
                        std::min(kBlockRows, s.rows - r),
                        s.columns,
                        depth,
                        s.out_stride};
      multiply_block(packed, block, std::min(kDepth, s.depth - k - depth));
    }
  }
}

// In huge pages, one for each thread.
Packed& packed_of_this_thread() {
  thread_local Result<Mapping> memory = map_private(sizeof(Packed));
  KINTSUGI_ASSERT_MSG(memory.ok(), "no memory to pack the operands of a matrix product");
  return *reinterpret_cast<Packed*>(memory->data());
}

void multiply_f32(float* out, const Operand<float>& a, const Operand<float>& b, const float* bias, bool accumulate,
                  const PanelShape& shape) {
  multiply_panel(packed_of_this_thread(), out, a, b, bias, accumulate, shape);
}

}  // namespace
}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kintsugi::kernels::cpu {

HWY_EXPORT(multiply_f32);

void multiply(float* out, Operand<float> a, Operand<float> b, const float* bias, bool accumulate, PanelShape shape) {
  KINTSUGI_ASSERT(bias == nullptr || !accumulate);
  KINTSUGI_ASSERT(shape.depth > 0);
  HWY_DYNAMIC_DISPATCH(multiply_f32)(out, a, b, bias, accumulate, shape);
}

}  // namespace kintsugi::kernels::cpu
#endif
