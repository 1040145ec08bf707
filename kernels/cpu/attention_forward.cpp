// Causal attention, forward, tiled with an online softmax (Milakov and Gimelshein 2018; Dao et al. 2022). A piece is
// one query head of one sequence. For each tile of queries, over the tiles of keys up to the diagonal:
//   S = Q K^T;  m' = max(m, rowmax S);  P = e^(S - m');  l = l e^(m - m') + rowsum P;  O = O e^(m - m') + P V
// and at the end out = O / l, log_sum_exp = m + log l.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_forward.cpp"
#include <hwy/foreach_target.h>
// After it:
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/assert.hpp"
#include "kernels/cpu/attention_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace {

// The running state of one tile of queries.
struct QueryTile {
  float* scores;   // (kTile, kTile)
  float* out;      // (kTile, width)
  float* maximum;  // (kTile)
  float* total;    // (kTile)
};

// Turns row r of the scores into probabilities relative to the new maximum. The rest of a diagonal row becomes zero.
template <bool kDiagonal>
HWY_INLINE void softmax_row(const QueryTile& tile, std::int64_t r, std::int64_t width) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  float* const row = tile.scores + r * kTile;
  auto maximum = hn::Set(d, tile.maximum[r]);
  const auto before = maximum;
  for (std::int64_t c = 0; c < (kDiagonal ? r + 1 : kTile); c += step) {
    auto s = hn::Load(d, row + c);
    if constexpr (kDiagonal) s = hn::IfThenElse(causal_mask(d, r, c), s, lowest);
    maximum = hn::Max(maximum, s);
  }
  maximum = hn::MaxOfLanes(d, maximum);
  auto sum = hn::Zero(d);
  for (std::int64_t c = 0; c < kTile; c += step) {
    auto e = hn::Zero(d);
    if (!kDiagonal || c <= r) {
      e = exp_nonpositive(d, hn::Sub(hn::Load(d, row + c), maximum));
      if constexpr (kDiagonal) e = hn::IfThenElseZero(causal_mask(d, r, c), e);
    }
    sum = hn::Add(sum, e);
    hn::Store(e, d, row + c);
  }
  const auto fade = exp_nonpositive(d, hn::Sub(before, maximum));
  tile.maximum[r] = hn::GetLane(maximum);
  tile.total[r] = tile.total[r] * hn::GetLane(fade) + hn::GetLane(hn::SumOfLanes(d, sum));
  float* const out = tile.out + r * width;
  for (std::int64_t c = 0; c < width; c += step) hn::Store(hn::Mul(hn::Load(d, out + c), fade), d, out + c);
}

template <class T>
void attention_head(const AttentionForwardPiece<T>& head, const AttentionShape& shape) {
  const std::int64_t length = shape.length, head_dim = shape.head_dim;
  const std::int64_t width = (head_dim + kWidthStep - 1) / kWidthStep * kWidthStep;
  const std::int64_t tiles = (length + kTile - 1) / kTile;
  const std::int64_t area = kTile * width;
  AttentionScratch& scratch = attention_scratch();
  scratch.begin((2 * tiles + 2) * area + kTile * kTile + 2 * kTile);
  float* const keys = scratch.take(tiles * area);    // (tiles, width, kTile): each tile transposed
  float* const values = scratch.take(tiles * area);  // (tiles, kTile, width)
  float* const queries = scratch.take(area);         // (kTile, width), scaled
  QueryTile tile{scratch.take(kTile * kTile), scratch.take(area), scratch.take(kTile), scratch.take(kTile)};
  for (std::int64_t j = 0; j < tiles; ++j) {
    const std::int64_t first = j * kTile, rows = std::min(kTile, length - first);
    pack_rows(queries, width, head.k + first * shape.kv_stride, shape.kv_stride, rows, head_dim, 1.0f);
    transpose(keys + j * area, queries, width);
    pack_rows(values + j * area, width, head.v + first * shape.kv_stride, shape.kv_stride, rows, head_dim, 1.0f);
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t first = i * kTile, rows = std::min(kTile, length - first);
    pack_rows(queries, width, head.q + first * shape.q_stride, shape.q_stride, rows, head_dim, scale);
    std::fill(tile.out, tile.out + area, 0.0f);
    std::fill(tile.maximum, tile.maximum + kTile, -std::numeric_limits<float>::infinity());
    std::fill(tile.total, tile.total + kTile, 0.0f);
    for (std::int64_t j = 0; j <= i; ++j) {
      const bool diagonal = j == i;
      multiply({tile.scores, kTile, false}, {queries, width, 1}, {keys + j * area, kTile}, {rows, head_dim, kTile},
               diagonal ? Triangle::columns_to_row : Triangle::none);
      if (diagonal) {
        for (std::int64_t r = 0; r < rows; ++r) softmax_row<true>(tile, r, width);
      } else {
        for (std::int64_t r = 0; r < rows; ++r) softmax_row<false>(tile, r, width);
      }
      multiply({tile.out, width, true}, {tile.scores, kTile, 1}, {values + j * area, width},
               {rows, diagonal ? rows : kTile, width}, diagonal ? Triangle::depth_to_row : Triangle::none);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      store_row(head.out + (first + r) * shape.out_stride, tile.out + r * width, head_dim, 1.0f / tile.total[r]);
      head.log_sum_exp[first + r] = tile.maximum[r] + std::log(tile.total[r]);
    }
  }
}

void attention_head_f32(const AttentionForwardPiece<float>& head, const AttentionShape& shape) {
  attention_head(head, shape);
}
void attention_head_bf16(const AttentionForwardPiece<bf16>& head, const AttentionShape& shape) {
  attention_head(head, shape);
}

}  // namespace
}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kintsugi::kernels::cpu {

HWY_EXPORT(attention_head_f32);
HWY_EXPORT(attention_head_bf16);

template <class T>
void attention_forward(ThreadPool& pool, T* out, float* log_sum_exp, const T* q, const T* k, const T* v,
                       AttentionShape shape) {
  KINTSUGI_ASSERT(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0);
  const std::int64_t group = shape.heads / shape.kv_heads;
  pool.run(shape.sequences * shape.heads, [=, &shape](std::int64_t piece) {
    const std::int64_t row = piece / shape.heads * shape.length;
    const std::int64_t head = piece % shape.heads;
    const std::int64_t key = row * shape.kv_stride + head / group * shape.head_dim;
    const AttentionForwardPiece<T> work{out + row * shape.out_stride + head * shape.head_dim,
                                        log_sum_exp + piece * shape.length,
                                        q + row * shape.q_stride + head * shape.head_dim, k + key, v + key};
    if constexpr (std::is_same_v<T, float>) {
      HWY_DYNAMIC_DISPATCH(attention_head_f32)(work, shape);
    } else {
      HWY_DYNAMIC_DISPATCH(attention_head_bf16)(work, shape);
    }
  });
}

template void attention_forward(ThreadPool&, float*, float*, const float*, const float*, const float*, AttentionShape);
template void attention_forward(ThreadPool&, bf16*, float*, const bf16*, const bf16*, const bf16*, AttentionShape);

}  // namespace kintsugi::kernels::cpu
#endif
