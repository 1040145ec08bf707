#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/float64_reference.hpp"

namespace kintsugi::kernels::cpu {
namespace {

struct Case {
  std::int64_t sequences;
  std::int64_t length;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
};
// One token; odd lengths; lengths under, at and over tile borders (64) and over several tiles; one head; grouped
// queries; widths that are no whole vectors, or wider than a panel of vectors.
constexpr Case kCases[] = {{1, 1, 1, 1, 4},    {2, 7, 2, 2, 16},   {1, 63, 1, 1, 64},  {1, 64, 2, 1, 64},
                           {1, 65, 1, 1, 64},  {2, 129, 4, 2, 32}, {1, 130, 6, 1, 40}, {3, 33, 3, 3, 5},
                           {1, 200, 2, 2, 80}, {1, 256, 2, 1, 128}};

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// q, k and v interleaved in a row, and three columns more; out with one column more.
AttentionShape shape_of(const Case& c) {
  const std::int64_t stride = (c.heads + 2 * c.kv_heads) * c.head_dim + 3;
  return {c.sequences, c.length, c.heads, c.kv_heads, c.head_dim, stride, stride, c.heads * c.head_dim + 1};
}

template <class T>
struct Tensors {
  explicit Tensors(const AttentionShape& s)
      : shape(s),
        k_at(s.heads * s.head_dim),
        v_at((s.heads + s.kv_heads) * s.head_dim),
        qkv(random_vector<T>(s.sequences * s.length * s.q_stride, 1.5, 1)),
        grad_out(random_vector<T>(s.sequences * s.length * s.out_stride, 1, 2)),
        out(grad_out.size()),
        grad(qkv.size()),
        log_sum_exp(at(s.sequences * s.heads * s.length)) {}

  void forward(ThreadPool& pool) {
    attention_forward(pool, out.data(), log_sum_exp.data(), qkv.data(), qkv.data() + k_at, qkv.data() + v_at, shape);
  }
  void backward(ThreadPool& pool) {
    attention_backward(pool, grad.data(), grad.data() + k_at, grad.data() + v_at, grad_out.data(), out.data(),
                       log_sum_exp.data(), qkv.data(), qkv.data() + k_at, qkv.data() + v_at, shape);
  }

  AttentionShape shape;
  std::int64_t k_at;
  std::int64_t v_at;
  std::vector<T> qkv;
  std::vector<T> grad_out;
  std::vector<T> out;
  std::vector<T> grad;  // laid out as qkv
  std::vector<float> log_sum_exp;
};

// The definition, in float64, one query at a time; gradients laid out as qkv. Columns beside the tensors stay zero.
struct Naive {
  template <class T>
  explicit Naive(const Tensors<T>& t)
      : s(t.shape),
        k_at(t.k_at),
        v_at(t.v_at),
        x(doubles(t.qkv)),
        g(doubles(t.grad_out)),
        out(g.size()),
        grad(x.size()),
        log_sum_exp(t.log_sum_exp.size()) {
    for (std::int64_t b = 0; b < s.sequences; ++b) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        for (std::int64_t i = 0; i < s.length; ++i) query(b, h, i);
      }
    }
  }

  void query(std::int64_t b, std::int64_t h, std::int64_t i) {
    const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
    const std::int64_t kv_head = h / (s.heads / s.kv_heads);
    const std::int64_t q = (b * s.length + i) * s.q_stride + h * s.head_dim;
    const std::int64_t o = (b * s.length + i) * s.out_stride + h * s.head_dim;
    const auto key = [&](std::int64_t j) { return k_at + (b * s.length + j) * s.kv_stride + kv_head * s.head_dim; };
    const auto value = [&](std::int64_t j) { return v_at + (b * s.length + j) * s.kv_stride + kv_head * s.head_dim; };
    std::vector<double> p;
    double total = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      p.push_back(std::exp(scale * dot(x, q, x, key(j))));
      total += p.back();
    }
    log_sum_exp[at((b * s.heads + h) * s.length + i)] = std::log(total);
    for (double& v : p) v /= total;
    for (std::int64_t j = 0; j <= i; ++j) add(out, o, p[at(j)], x, value(j));
    const double delta = dot(g, o, out, o);
    for (std::int64_t j = 0; j <= i; ++j) {
      const double grad_score = scale * p[at(j)] * (dot(g, o, x, value(j)) - delta);
      add(grad, value(j), p[at(j)], g, o);
      add(grad, q, grad_score, x, key(j));
      add(grad, key(j), grad_score, x, q);
    }
  }
  double dot(const std::vector<double>& a, std::int64_t i, const std::vector<double>& b, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t c = 0; c < s.head_dim; ++c) sum += a[at(i + c)] * b[at(j + c)];
    return sum;
  }
  void add(std::vector<double>& to, std::int64_t i, double factor, const std::vector<double>& from,
           std::int64_t j) const {
    for (std::int64_t c = 0; c < s.head_dim; ++c) to[at(i + c)] += factor * from[at(j + c)];
  }

  AttentionShape s;
  std::int64_t k_at;
  std::int64_t v_at;
  std::vector<double> x;
  std::vector<double> g;
  std::vector<double> out;
  std::vector<double> grad;
  std::vector<double> log_sum_exp;
};

template <class T>
class Attention : public ::testing::Test {};
TYPED_TEST_SUITE(Attention, Storages);

TYPED_TEST(Attention, forward_is_the_softmax_average_of_the_values_so_far) {
  ThreadPool pool(2);
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << "length " << c.length << " heads " << c.heads << " head_dim " << c.head_dim);
    Tensors<TypeParam> t(shape_of(c));
    t.forward(pool);
    const Naive expected(t);
    // Scores are sums of head_dim products up to 2, so they carry up to 2e-6, and so does the average.
    expect_close(t.out, expected.out, 5e-6, "out");
    expect_close(t.log_sum_exp, expected.log_sum_exp, 5e-6, "log_sum_exp");
  }
}

TYPED_TEST(Attention, backward_is_the_gradient_of_queries_keys_and_values) {
  ThreadPool pool(2);
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << "length " << c.length << " heads " << c.heads << " head_dim " << c.head_dim);
    Tensors<TypeParam> t(shape_of(c));
    t.forward(pool);
    t.backward(pool);
    const Naive expected(t);
    // delta is a product with `out` as it was stored: rounding it to bfloat16 moves delta by 2^-9 times a sum of
    // head_dim products with random signs, and the gradients by that times probabilities that add up to 1 (keys: to the
    // heads of a group times a few).
    expect_close(t.grad, expected.grad, std::is_same_v<TypeParam, float> ? 4e-5 : 2e-2, "gradient");
  }
}

TYPED_TEST(Attention, threads_do_not_show) {
  expect_threads_do_not_show([](ThreadPool& pool) {
    Tensors<TypeParam> t(shape_of({2, 100, 6, 3, 24}));
    t.forward(pool);
    t.backward(pool);
    auto all = t.out;
    all.insert(all.end(), t.grad.begin(), t.grad.end());
    return all;
  });
}

TYPED_TEST(Attention, working_memory_left_by_a_larger_call_does_not_show) {
  ThreadPool pool(1);
  Tensors<TypeParam> first(shape_of({1, 77, 2, 1, 20})), large(shape_of({1, 300, 1, 1, 100}));
  Tensors<TypeParam> again = first;
  first.forward(pool), first.backward(pool);
  large.qkv.assign(large.qkv.size(), rounded<TypeParam>(std::numeric_limits<double>::infinity()));
  large.forward(pool), large.backward(pool);
  again.forward(pool), again.backward(pool);
  EXPECT_TRUE(same_bits(first.out, again.out));
  EXPECT_TRUE(same_bits(first.grad, again.grad));
}

TYPED_TEST(Attention, a_later_token_never_shows_in_an_earlier_row) {
  ThreadPool pool(1);
  Tensors<TypeParam> t(shape_of({1, 90, 1, 1, 16}));
  t.forward(pool);
  const auto before = t.out;
  for (std::size_t i = at(70 * t.shape.q_stride); i < t.qkv.size(); ++i) t.qkv[i] = rounded<TypeParam>(3.0);
  t.forward(pool);
  EXPECT_TRUE(std::memcmp(before.data(), t.out.data(), at(70 * t.shape.out_stride) * sizeof(TypeParam)) == 0);
}

TEST(AttentionEdges, large_scores_neither_overflow_nor_vanish) {
  ThreadPool pool(1);
  Tensors<float> t(shape_of({1, 70, 1, 1, 8}));
  for (float& v : t.qkv) v *= 40;
  t.forward(pool);
  // Scores near 10^4 carry 2e-3 each; where two nearly tie, the average moves by that times the values' range.
  expect_close(t.log_sum_exp, Naive(t).log_sum_exp, 1e-2, "log_sum_exp");
  for (const float v : t.out) EXPECT_TRUE(std::isfinite(v));
}

TEST(AttentionEdges, a_nan_in_a_query_shows_in_its_row) {
  ThreadPool pool(1);
  Tensors<float> t(shape_of({1, 70, 1, 1, 8}));
  t.qkv[at(66 * t.shape.q_stride)] = std::numeric_limits<float>::quiet_NaN();
  t.forward(pool);
  EXPECT_TRUE(std::isnan(t.out[at(66 * t.shape.out_stride)]));
  EXPECT_TRUE(std::isfinite(t.out[at(65 * t.shape.out_stride)]));
}

TEST(AttentionEdges, backward_is_the_slope_of_forward) {
  ThreadPool pool(1);
  Tensors<float> t(shape_of({1, 6, 2, 1, 4}));
  t.forward(pool);
  t.backward(pool);
  const auto loss = [&](const std::vector<float>& x) {
    Tensors<float> moved = t;
    moved.qkv = x;
    moved.forward(pool);
    double sum = 0;
    for (std::int64_t r = 0; r < 6; ++r) {
      for (std::int64_t c = 0; c < 8; ++c) {
        const std::size_t i = at(r * t.shape.out_stride + c);
        sum += to_double(moved.out[i]) * to_double(t.grad_out[i]);
      }
    }
    return sum;
  };
  for (std::size_t i = 0; i < t.qkv.size(); ++i) EXPECT_NEAR(t.grad[i], numerical_slope(t.qkv, i, loss), 5e-4) << i;
}

}  // namespace
}  // namespace kintsugi::kernels::cpu
