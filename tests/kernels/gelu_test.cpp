#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/float64_reference.hpp"

namespace kintsugi::kernels::cpu {
namespace {

double reference(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double reference_slope(double x) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

template <class T>
class Gelu : public ::testing::Test {};
TYPED_TEST_SUITE(Gelu, Storages);

constexpr std::int64_t kCounts[] = {1, 7, 16, 33, 16384, 16384 + 5};

TYPED_TEST(Gelu, forward_is_the_tanh_form) {
  ThreadPool pool(2);
  for (const std::int64_t count : kCounts) {
    const auto in = random_vector<TypeParam>(count, 8, 1);
    std::vector<TypeParam> out(in.size());
    gelu_forward(pool, out.data(), in.data(), count);
    std::vector<double> expected;
    for (const double x : doubles(in)) expected.push_back(reference(x));
    expect_close(out, expected, 1e-6, "out");
  }
}

TYPED_TEST(Gelu, backward_is_the_derivative_times_the_gradient_and_may_work_in_place) {
  ThreadPool pool(2);
  for (const std::int64_t count : kCounts) {
    const auto in = random_vector<TypeParam>(count, 8, 1);
    const auto grad_out = random_vector<TypeParam>(count, 2, 2);
    std::vector<double> expected;
    for (std::size_t i = 0; i < in.size(); ++i) {
      expected.push_back(to_double(grad_out[i]) * reference_slope(to_double(in[i])));
    }
    std::vector<TypeParam> grad_in(in.size()), in_place = grad_out;
    gelu_backward(pool, grad_in.data(), grad_out.data(), in.data(), count);
    gelu_backward(pool, in_place.data(), in_place.data(), in.data(), count);
    expect_close(grad_in, expected, 3e-6, "grad_in");
    EXPECT_TRUE(same_bits(grad_in, in_place));
  }
}

TYPED_TEST(Gelu, threads_do_not_show) {
  const auto in = random_vector<TypeParam>(50001, 4, 1);
  const auto grad_out = random_vector<TypeParam>(50001, 4, 2);
  expect_threads_do_not_show([&](ThreadPool& pool) {
    std::vector<TypeParam> out(2 * in.size());
    gelu_forward(pool, out.data(), in.data(), 50001);
    gelu_backward(pool, out.data() + in.size(), grad_out.data(), in.data(), 50001);
    return out;
  });
}

TEST(GeluEdges, a_nan_stays_a_nan_and_far_arguments_stay_finite) {
  ThreadPool pool(1);
  const std::vector<float> in = {std::numeric_limits<float>::quiet_NaN(), 1e6f, -1e6f, 0.0f};
  const std::vector<float> ones(4, 1.0f);
  std::vector<float> out(4), grad(4);
  gelu_forward(pool, out.data(), in.data(), 4);
  gelu_backward(pool, grad.data(), ones.data(), in.data(), 4);
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(grad[0]));
  EXPECT_EQ(out[1], 1e6f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_EQ(grad[1], 1.0f);
  EXPECT_EQ(grad[2], 0.0f);
  EXPECT_EQ(grad[3], 0.5f);
}

TEST(GeluEdges, backward_is_the_slope_of_forward) {
  ThreadPool pool(1);
  const auto in = random_vector<float>(37, 3, 3);
  const auto grad_out = random_vector<float>(37, 1, 4);
  std::vector<float> grad(in.size());
  gelu_backward(pool, grad.data(), grad_out.data(), in.data(), 37);
  const auto loss = [&](const std::vector<float>& x) {
    std::vector<float> out(x.size());
    gelu_forward(pool, out.data(), x.data(), 37);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += to_double(out[i]) * to_double(grad_out[i]);
    return sum;
  };
  for (std::size_t i = 0; i < in.size(); ++i) EXPECT_NEAR(grad[i], numerical_slope(in, i, loss), 2e-4) << i;
}

}  // namespace
}  // namespace kintsugi::kernels::cpu
