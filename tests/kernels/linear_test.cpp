#include <gtest/gtest.h>

#include "kernels/cpu/matmul.hpp"
#include "tests/kernels/float64_reference.hpp"

namespace kintsugi::kernels::cpu {
namespace {

constexpr LinearShape kShapes[] = {{1, 1, 1},     {3, 17, 5},     {17, 100, 257},
                                   {257, 3, 100}, {100, 257, 17}, {600, 64, 800}};

// sums[i][j] = sum over k of a(i, k) * b(k, j)
template <class A, class B>
std::vector<double> product(std::int64_t rows, std::int64_t depth, std::int64_t columns, const A& a, const B& b) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < depth; ++k) sum += a(i, k) * b(k, j);
      out.push_back(sum);
    }
  }
  return out;
}

template <class T>
auto matrix(const std::vector<T>& data, std::int64_t columns) {
  return [&data, columns](std::int64_t i, std::int64_t j) {
    return to_double(data[static_cast<std::size_t>(i * columns + j)]);
  };
}

template <class T>
struct Case {
  explicit Case(LinearShape s)
      : shape(s),
        x(random_vector<T>(s.rows * s.inputs, 1, 1)),
        w(random_vector<T>(s.outputs * s.inputs, 1, 2)),
        b(random_vector<T>(s.outputs, 1, 3)),
        dy(random_vector<T>(s.rows * s.outputs, 1, 4)),
        dw(w.size(), 0.5f),
        db(b.size(), 0.5f) {}

  LinearShape shape;
  std::vector<T> x, w, b, dy;
  std::vector<float> dw, db;
};

// float32's share: 800 additions to sums of up to 30, each rounded by up to 2^-20: sqrt(800) * 1e-6 in a bad case.
constexpr double kTolerance = 6e-5;

template <class T>
class Linear : public ::testing::Test {
 protected:
  Linear() { prepare_compute_thread(); }
};
TYPED_TEST_SUITE(Linear, Storages);

TYPED_TEST(Linear, forward_agrees_with_float64_with_and_without_bias_and_stored_as_float32) {
  ThreadPool pool(2);
  for (const LinearShape& s : kShapes) {
    const Case<TypeParam> c(s);
    const auto w = matrix(c.w, s.inputs);
    std::vector<double> expected = product(s.rows, s.inputs, s.outputs, matrix(c.x, s.inputs),
                                           [&](std::int64_t k, std::int64_t j) { return w(j, k); });
    std::vector<TypeParam> out(c.dy.size(), rounded<TypeParam>(7));
    linear_forward(pool, out.data(), c.x.data(), c.w.data(), static_cast<const TypeParam*>(nullptr), s);
    expect_close(out, expected, kTolerance, "without bias");
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += to_double(c.b[i % static_cast<std::size_t>(s.outputs)]);
    }
    linear_forward(pool, out.data(), c.x.data(), c.w.data(), c.b.data(), s);
    expect_close(out, expected, kTolerance, "with bias");
    std::vector<float> wide(out.size());
    linear_forward(pool, wide.data(), c.x.data(), c.w.data(), c.b.data(), s);
    expect_close(wide, expected, kTolerance, "stored as float32");
  }
}

TYPED_TEST(Linear, backward_of_the_input_agrees_with_float64) {
  ThreadPool pool(2);
  for (const LinearShape& s : kShapes) {
    const Case<TypeParam> c(s);
    std::vector<TypeParam> dx(c.x.size(), rounded<TypeParam>(7));
    linear_backward_input(pool, dx.data(), c.dy.data(), c.w.data(), s);
    expect_close(dx, product(s.rows, s.outputs, s.inputs, matrix(c.dy, s.outputs), matrix(c.w, s.inputs)), kTolerance,
                 "grad_in");
  }
}

TYPED_TEST(Linear, backward_of_the_weight_agrees_with_float64_stored_and_accumulated) {
  ThreadPool pool(2);
  for (const LinearShape& s : kShapes) {
    for (const bool accumulate : {false, true}) {
      Case<TypeParam> c(s);
      const auto dy = matrix(c.dy, s.outputs);
      std::vector<double> weight = product(
          s.outputs, s.rows, s.inputs, [&](std::int64_t i, std::int64_t k) { return dy(k, i); }, matrix(c.x, s.inputs));
      std::vector<double> bias = product(
          1, s.rows, s.outputs, [](std::int64_t, std::int64_t) { return 1.0; }, dy);
      for (double& v : weight) v += accumulate ? 0.5 : 0;
      for (double& v : bias) v += accumulate ? 0.5 : 0;
      linear_backward_weight(pool, c.dw.data(), c.db.data(), c.dy.data(), c.x.data(), s, accumulate);
      expect_close(c.dw, weight, kTolerance, "grad_weight");
      expect_close(c.db, bias, kTolerance, "grad_bias");
    }
  }
}

TYPED_TEST(Linear, threads_do_not_show) {
  const LinearShape s{1030, 200, 1550};
  const Case<TypeParam> c(s);
  expect_threads_do_not_show([&](ThreadPool& pool) {
    std::vector<TypeParam> out(c.dy.size());
    linear_forward(pool, out.data(), c.x.data(), c.w.data(), c.b.data(), s);
    return out;
  });
  expect_threads_do_not_show([&](ThreadPool& pool) {
    std::vector<TypeParam> out(c.x.size());
    linear_backward_input(pool, out.data(), c.dy.data(), c.w.data(), s);
    return out;
  });
  expect_threads_do_not_show([&](ThreadPool& pool) {
    std::vector<float> out = c.dw;
    linear_backward_weight(pool, out.data(), static_cast<float*>(nullptr), c.dy.data(), c.x.data(), s, true);
    return out;
  });
}

TYPED_TEST(Linear, alignment_does_not_show) {
  const LinearShape s{300, 100, 200};
  const Case<TypeParam> c(s);
  ThreadPool pool(1);
  std::vector<TypeParam> expected(c.dy.size()), moved_x(c.x.size() + 1), moved_w(c.w.size() + 1);
  linear_forward(pool, expected.data(), c.x.data(), c.w.data(), c.b.data(), s);
  std::copy(c.x.begin(), c.x.end(), moved_x.begin() + 1);
  std::copy(c.w.begin(), c.w.end(), moved_w.begin() + 1);
  std::vector<TypeParam> out(expected.size() + 1);
  linear_forward(pool, out.data() + 1, moved_x.data() + 1, moved_w.data() + 1, c.b.data(), s);
  out.erase(out.begin());
  EXPECT_TRUE(same_bits(out, expected));
}

TEST(MatmulWidened, agrees_with_float64_whatever_is_transposed_and_whatever_it_starts_from) {
  prepare_compute_thread();
  constexpr PanelShape kShape{17, 33, 50, 40};
  const auto a = random_vector<bf16>(17 * 50, 1, 1), b = random_vector<bf16>(50 * 33, 1, 2);
  const auto bias = random_vector<bf16>(33, 1, 3);
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      const auto at = matrix(a, a_transposed ? 17 : 50), bt = matrix(b, b_transposed ? 50 : 33);
      std::vector<double> expected = product(
          17, 50, 33, [&](std::int64_t i, std::int64_t k) { return a_transposed ? at(k, i) : at(i, k); },
          [&](std::int64_t k, std::int64_t j) { return b_transposed ? bt(j, k) : bt(k, j); });
      const Operand<bf16> left{a.data(), a_transposed ? 17 : 50, a_transposed};
      const Operand<bf16> right{b.data(), b_transposed ? 50 : 33, b_transposed};
      std::vector<float> wide(17 * 40, 0.5f), wide_rows;
      std::vector<bf16> narrow(17 * 40), narrow_rows;
      multiply_widened(wide.data(), left, right, nullptr, true, kShape);
      multiply_widened(narrow.data(), left, right, bias.data(), false, kShape);
      std::vector<double> biased = expected;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] += 0.5;
        biased[i] += to_double(bias[i % 33]);
        wide_rows.push_back(wide[i / 33 * 40 + i % 33]);
        narrow_rows.push_back(narrow[i / 33 * 40 + i % 33]);
      }
      expect_close(wide_rows, expected, kTolerance, "accumulated");
      expect_close(narrow_rows, biased, kTolerance, "with bias");
      EXPECT_EQ(wide[33], 0.5f);  // between the rows
    }
  }
}

}  // namespace
}  // namespace kintsugi::kernels::cpu
