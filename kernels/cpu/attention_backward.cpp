// Causal attention, backward (Dao et al. 2022, algorithm 4): probabilities are computed again from log_sum_exp, a tile
// at a time. A piece is one key/value head of one sequence, so that one thread adds what its query heads give, in
// order. For each query head and tile of queries, with delta = rowsum(grad_out * out), over the tiles of keys up to the
// diagonal:
//   P = e^(Q K^T - log_sum_exp);  grad_V += P^T grad_out;  G = P * (grad_out V^T - delta);
//   grad_K += G^T Q;  grad_Q += G K
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>
// After it:
#include <cmath>
#include <type_traits>

#include "base/assert.hpp"
#include "kernels/cpu/attention_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace {

// The keys and values of a piece, packed once, and their gradients so far: (tiles, kTile, width) each, or each tile
// transposed, (tiles, width, kTile).
struct KeyTiles {
  float* keys;
  float* keys_transposed;
  float* values_transposed;
  float* grad_keys;
  float* grad_values;
};

struct QueryTile {
  float* q;              // (kTile, width), scaled
  float* grad_out;       // (kTile, width)
  float* grad_q;         // (kTile, width)
  float* probabilities;  // (kTile, kTile)
  float* grad_scores;    // (kTile, kTile)
  float* delta;          // (kTile)
};

struct Extent {
  std::int64_t width;
  std::int64_t queries;  // rows of the query tile
  std::int64_t head_dim;
  bool diagonal;
};

// Scores become probabilities and their gradients those of the scores; the rest of a diagonal row becomes zero.
template <bool kDiagonal>
HWY_INLINE void probability_row(const QueryTile& tile, std::int64_t r, float log_sum_exp) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const auto shift = hn::Set(d, log_sum_exp);
  const auto delta = hn::Set(d, tile.delta[r]);
  float* const row = tile.probabilities + r * kTile;
  float* const grad = tile.grad_scores + r * kTile;
  for (std::int64_t c = 0; c < kTile; c += step) {
    auto p = hn::Zero(d), g = hn::Zero(d);
    if (!kDiagonal || c <= r) {
      p = exp_nonpositive(d, hn::Sub(hn::Load(d, row + c), shift));
      g = hn::Mul(p, hn::Sub(hn::Load(d, grad + c), delta));
      if constexpr (kDiagonal) {
        const auto mask = causal_mask(d, r, c);
        p = hn::IfThenElseZero(mask, p);
        g = hn::IfThenElseZero(mask, g);
      }
    }
    hn::Store(p, d, row + c);
    hn::Store(g, d, grad + c);
  }
}

// delta[r] = sum of grad_out * out over the head.
template <class T>
float row_delta(const float* grad_out, const T* out, std::int64_t head_dim) {
  const Float d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + step <= head_dim; i += step) sum = hn::MulAdd(hn::Load(d, grad_out + i), load(d, out + i), sum);
  const auto rest = static_cast<std::size_t>(head_dim - i);
  if (rest > 0) sum = hn::MulAdd(hn::Load(d, grad_out + i), load_first(d, out + i, rest), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// One tile of queries against key tile j.
void tile_pair(const QueryTile& tile, const KeyTiles& all, std::int64_t j, const float* log_sum_exp, Extent e) {
  const std::int64_t at = j * kTile * e.width;
  const std::int64_t keys = e.diagonal ? e.queries : kTile;
  const Triangle wanted = e.diagonal ? Triangle::columns_to_row : Triangle::none;
  const Triangle upper = e.diagonal ? Triangle::depth_from_row : Triangle::none;
  const Triangle lower = e.diagonal ? Triangle::depth_to_row : Triangle::none;
  const Sizes scores{e.queries, e.head_dim, kTile}, over_queries{keys, e.queries, e.width};
  multiply({tile.probabilities, kTile, false}, {tile.q, e.width, 1}, {all.keys_transposed + at, kTile}, scores, wanted);
  multiply({tile.grad_scores, kTile, false}, {tile.grad_out, e.width, 1}, {all.values_transposed + at, kTile}, scores,
           wanted);
  for (std::int64_t r = 0; r < e.queries; ++r) {
    if (e.diagonal) {
      probability_row<true>(tile, r, log_sum_exp[r]);
    } else {
      probability_row<false>(tile, r, log_sum_exp[r]);
    }
  }
  multiply({all.grad_values + at, e.width, true}, {tile.probabilities, 1, kTile}, {tile.grad_out, e.width},
           over_queries, upper);
  multiply({all.grad_keys + at, e.width, true}, {tile.grad_scores, 1, kTile}, {tile.q, e.width}, over_queries, upper);
  multiply({tile.grad_q, e.width, true}, {tile.grad_scores, kTile, 1}, {all.keys + at, e.width},
           {e.queries, keys, e.width}, lower);
}

template <class T>
void attention_group(const AttentionBackwardPiece<T>& piece, const AttentionShape& shape) {
  const std::int64_t length = shape.length, head_dim = shape.head_dim;
  const std::int64_t width = (head_dim + kWidthStep - 1) / kWidthStep * kWidthStep;
  const std::int64_t tiles = (length + kTile - 1) / kTile;
  const std::int64_t area = kTile * width;
  AttentionScratch& scratch = attention_scratch();
  scratch.begin((5 * tiles + 3) * area + 2 * kTile * kTile + kTile);
  const auto take = [&] { return scratch.take(tiles * area); };
  const KeyTiles all{take(), take(), take(), take(), take()};
  const QueryTile tile{scratch.take(area),          scratch.take(area),          scratch.take(area),
                       scratch.take(kTile * kTile), scratch.take(kTile * kTile), scratch.take(kTile)};
  std::fill(all.grad_keys, all.grad_keys + tiles * area, 0.0f);
  std::fill(all.grad_values, all.grad_values + tiles * area, 0.0f);
  for (std::int64_t j = 0; j < tiles; ++j) {
    const std::int64_t first = j * kTile, rows = std::min(kTile, length - first);
    pack_rows(all.keys + j * area, width, piece.k + first * shape.kv_stride, shape.kv_stride, rows, head_dim, 1.0f);
    transpose(all.keys_transposed + j * area, all.keys + j * area, width);
    pack_rows(tile.q, width, piece.v + first * shape.kv_stride, shape.kv_stride, rows, head_dim, 1.0f);
    transpose(all.values_transposed + j * area, tile.q, width);
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  for (std::int64_t h = 0; h < shape.heads / shape.kv_heads; ++h) {
    for (std::int64_t i = 0; i < tiles; ++i) {
      const std::int64_t first = i * kTile, rows = std::min(kTile, length - first);
      const std::int64_t at_q = first * shape.q_stride + h * head_dim;
      const std::int64_t at_out = first * shape.out_stride + h * head_dim;
      pack_rows(tile.q, width, piece.q + at_q, shape.q_stride, rows, head_dim, scale);
      pack_rows(tile.grad_out, width, piece.grad_out + at_out, shape.out_stride, rows, head_dim, 1.0f);
      std::fill(tile.grad_q, tile.grad_q + area, 0.0f);
      for (std::int64_t r = 0; r < rows; ++r) {
        tile.delta[r] = row_delta(tile.grad_out + r * width, piece.out + at_out + r * shape.out_stride, head_dim);
      }
      for (std::int64_t j = 0; j <= i; ++j) {
        tile_pair(tile, all, j, piece.log_sum_exp + h * length + first, {width, rows, head_dim, j == i});
      }
      for (std::int64_t r = 0; r < rows; ++r) {
        store_row(piece.grad_q + at_q + r * shape.q_stride, tile.grad_q + r * width, head_dim, scale);
      }
    }
  }
  for (std::int64_t r = 0; r < length; ++r) {
    store_row(piece.grad_k + r * shape.kv_stride, all.grad_keys + r * width, head_dim, 1.0f);
    store_row(piece.grad_v + r * shape.kv_stride, all.grad_values + r * width, head_dim, 1.0f);
  }
}

void attention_group_f32(const AttentionBackwardPiece<float>& piece, const AttentionShape& shape) {
  attention_group(piece, shape);
}
void attention_group_bf16(const AttentionBackwardPiece<bf16>& piece, const AttentionShape& shape) {
  attention_group(piece, shape);
}

}  // namespace
}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kintsugi::kernels::cpu {

HWY_EXPORT(attention_group_f32);
HWY_EXPORT(attention_group_bf16);

template <class T>
void attention_backward(ThreadPool& pool, T* grad_q, T* grad_k, T* grad_v, const T* grad_out, const T* out,
                        const float* log_sum_exp, const T* q, const T* k, const T* v, AttentionShape shape) {
  KINTSUGI_ASSERT(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0);
  const std::int64_t group = shape.heads / shape.kv_heads;
  pool.run(shape.sequences * shape.kv_heads, [=, &shape](std::int64_t piece) {
    const std::int64_t sequence = piece / shape.kv_heads, kv_head = piece % shape.kv_heads;
    const std::int64_t row = sequence * shape.length, head = kv_head * group;
    const std::int64_t at_q = row * shape.q_stride + head * shape.head_dim;
    const std::int64_t at_key = row * shape.kv_stride + kv_head * shape.head_dim;
    const std::int64_t at_out = row * shape.out_stride + head * shape.head_dim;
    const AttentionBackwardPiece<T> work{
        grad_q + at_q,     grad_k + at_key, grad_v + at_key,
        grad_out + at_out, out + at_out,    log_sum_exp + (sequence * shape.heads + head) * shape.length,
        q + at_q,          k + at_key,      v + at_key};
    if constexpr (std::is_same_v<T, float>) {
      HWY_DYNAMIC_DISPATCH(attention_group_f32)(work, shape);
    } else {
      HWY_DYNAMIC_DISPATCH(attention_group_bf16)(work, shape);
    }
  });
}

template void attention_backward(ThreadPool&, float*, float*, float*, const float*, const float*, const float*,
                                 const float*, const float*, const float*, AttentionShape);
template void attention_backward(ThreadPool&, bf16*, bf16*, bf16*, const bf16*, const bf16*, const float*, const bf16*,
                                 const bf16*, const bf16*, AttentionShape);

}  // namespace kintsugi::kernels::cpu
#endif
