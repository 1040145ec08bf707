#include <gtest/gtest.h>

#include "tests/kernels/float64_reference.hpp"

namespace kintsugi::kernels::cpu {
namespace {

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

struct Case {
  std::int64_t rows;
  std::int64_t hidden;
};
// Odd widths, one element, a row as wide as a piece and wider, several rows a piece.
constexpr Case kCases[] = {{1, 1}, {3, 7}, {5, 33}, {1, 16384}, {2, 20001}, {40, 1000}};

template <class T>
class Swiglu : public ::testing::Test {};
TYPED_TEST_SUITE(Swiglu, Storages);

TYPED_TEST(Swiglu, forward_gates_the_upper_half) {
  ThreadPool pool(2);
  for (const auto [rows, hidden] : kCases) {
    const auto in = random_vector<TypeParam>(rows * 2 * hidden, 6, 1);
    std::vector<TypeParam> out(static_cast<std::size_t>(rows * hidden));
    swiglu_forward(pool, out.data(), in.data(), rows, hidden);
    const auto x = doubles(in);
    std::vector<double> expected;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < hidden; ++i) {
        const double gate = x[static_cast<std::size_t>(r * 2 * hidden + i)];
        expected.push_back(gate * logistic(gate) * x[static_cast<std::size_t>((r * 2 + 1) * hidden + i)]);
      }
    }
    expect_close(out, expected, 5e-6, "out");  // products up to 36
  }
}

TYPED_TEST(Swiglu, backward_is_the_derivative_of_both_halves) {
  ThreadPool pool(2);
  for (const auto [rows, hidden] : kCases) {
    const auto in = random_vector<TypeParam>(rows * 2 * hidden, 6, 1);
    const auto grad_out = random_vector<TypeParam>(rows * hidden, 2, 2);
    std::vector<TypeParam> grad_in(in.size());
    swiglu_backward(pool, grad_in.data(), grad_out.data(), in.data(), rows, hidden);
    const auto x = doubles(in), g = doubles(grad_out);
    std::vector<double> expected(in.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < hidden; ++i) {
        const auto at = static_cast<std::size_t>(r * 2 * hidden + i), up = at + static_cast<std::size_t>(hidden);
        const double grad = g[static_cast<std::size_t>(r * hidden + i)], s = logistic(x[at]);
        expected[at] = grad * x[up] * (s + x[at] * s * (1 - s));
        expected[up] = grad * x[at] * s;
      }
    }
    expect_close(grad_in, expected, 1e-5, "grad_in");  // products up to 72
  }
}

TYPED_TEST(Swiglu, threads_do_not_show) {
  const auto in = random_vector<TypeParam>(100 * 2 * 777, 4, 1);
  const auto grad_out = random_vector<TypeParam>(100 * 777, 4, 2);
  expect_threads_do_not_show([&](ThreadPool& pool) {
    std::vector<TypeParam> out(grad_out.size() + in.size());
    swiglu_forward(pool, out.data(), in.data(), 100, 777);
    swiglu_backward(pool, out.data() + grad_out.size(), grad_out.data(), in.data(), 100, 777);
    return out;
  });
}

TEST(SwigluGradient, backward_is_the_slope_of_forward) {
  ThreadPool pool(1);
  const auto in = random_vector<float>(2 * 2 * 5, 2, 3);
  const auto grad_out = random_vector<float>(2 * 5, 1, 4);
  std::vector<float> grad(in.size());
  swiglu_backward(pool, grad.data(), grad_out.data(), in.data(), 2, 5);
  const auto loss = [&](const std::vector<float>& x) {
    std::vector<float> out(grad_out.size());
    swiglu_forward(pool, out.data(), x.data(), 2, 5);
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += to_double(out[i]) * to_double(grad_out[i]);
    return sum;
  };
  for (std::size_t i = 0; i < in.size(); ++i) EXPECT_NEAR(grad[i], numerical_slope(in, i, loss), 2e-4) << i;
}

}  // namespace
}  // namespace kintsugi::kernels::cpu
