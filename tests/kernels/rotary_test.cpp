#include <gtest/gtest.h>

#include "tests/kernels/float64_reference.hpp"

namespace kintsugi::kernels::cpu {
namespace {

struct Case {
  std::int64_t sequences;
  std::int64_t length;
  std::int64_t heads;
  std::int64_t head_dim;
  std::int64_t stride;
};
// One of everything; a half that is no whole vector; heads beside other columns; more positions than a piece holds.
constexpr Case kCases[] = {{1, 1, 1, 2, 2}, {2, 7, 3, 10, 37}, {1, 40, 2, 64, 3 * 128}, {3, 17, 1, 36, 36}};

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

std::vector<double> reference(std::vector<double> x, const Case& c, double theta, double direction) {
  for (std::int64_t r = 0; r < c.sequences * c.length; ++r) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t i = 0; i < c.head_dim / 2; ++i) {
        const double angle = direction * static_cast<double>(r % c.length) *
                             std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim));
        double& low = x[at(r * c.stride + h * c.head_dim + i)];
        double& high = x[at(r * c.stride + h * c.head_dim + i + c.head_dim / 2)];
        const double turned = low * std::cos(angle) - high * std::sin(angle);
        high = high * std::cos(angle) + low * std::sin(angle);
        low = turned;
      }
    }
  }
  return x;
}

template <class T>
class Rotary : public ::testing::Test {};
TYPED_TEST_SUITE(Rotary, Storages);

TYPED_TEST(Rotary, turns_each_pair_by_its_angle_and_leaves_other_columns_alone) {
  ThreadPool pool(2);
  for (const Case& c : kCases) {
    const std::int64_t rows = c.sequences * c.length;
    const auto x = random_vector<TypeParam>(rows * c.stride, 2, 1);
    for (const bool inverse : {false, true}) {
      auto turned = x;
      rotary(pool, turned.data(), c.stride, rows, c.heads, c.head_dim, c.length, 10000.0f, inverse);
      expect_close(turned, reference(doubles(x), c, 10000.0, inverse ? -1 : 1), 5e-7, "rotated");
    }
  }
}

TEST(RotaryPair, inverse_undoes_forward) {
  ThreadPool pool(1);
  const auto x = random_vector<float>(100 * 64, 1, 1);
  auto turned = x;
  rotary(pool, turned.data(), 64, 100, 1, 64, 100, 500000.0f, false);
  rotary(pool, turned.data(), 64, 100, 1, 64, 100, 500000.0f, true);
  expect_close(turned, doubles(x), 5e-7, "there and back");
}

TEST(RotaryPair, inverse_is_the_gradient_of_forward) {
  ThreadPool pool(1);
  const auto x = random_vector<float>(3 * 8, 1, 1);
  const auto grad_out = random_vector<float>(3 * 8, 1, 2);
  auto grad = grad_out;
  rotary(pool, grad.data(), 8, 3, 1, 8, 3, 100.0f, true);
  const auto loss = [&](std::vector<float> in) {
    rotary(pool, in.data(), 8, 3, 1, 8, 3, 100.0f, false);
    double sum = 0;
    for (std::size_t i = 0; i < in.size(); ++i) sum += to_double(in[i]) * to_double(grad_out[i]);
    return sum;
  };
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(grad[i], numerical_slope(x, i, loss), 2e-4) << i;
}

TYPED_TEST(Rotary, threads_do_not_show) {
  const auto x = random_vector<TypeParam>(2 * 100 * 96, 1, 1);
  expect_threads_do_not_show([&](ThreadPool& pool) {
    auto turned = x;
    rotary(pool, turned.data(), 96, 200, 3, 32, 100, 10000.0f, false);
    return turned;
  });
}

}  // namespace
}  // namespace kintsugi::kernels::cpu
