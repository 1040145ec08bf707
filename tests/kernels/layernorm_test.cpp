#include <gtest/gtest.h>

#include "tests/kernels/float64_reference.hpp"

namespace kintsugi::kernels::cpu {
namespace {

constexpr float kEpsilon = 1e-5f;

struct Shape {
  std::int64_t rows, width;
};
constexpr Shape kShapes[] = {{1, 1}, {3, 17}, {5, 100}, {17, 257}, {100, 768}};

struct Reference {
  std::vector<double> out, mean, rstd, grad_in, grad_weight, grad_bias;
};

Reference reference(Shape s, const std::vector<double>& x, const std::vector<double>& w, const std::vector<double>& b,
                    const std::vector<double>& dy) {
  const auto width = static_cast<std::size_t>(s.width);
  Reference r;
  r.grad_weight.assign(width, 0);
  r.grad_bias.assign(width, 0);
  for (std::size_t row = 0; row < static_cast<std::size_t>(s.rows); ++row) {
    const double* in = x.data() + row * width;
    const double* grad = dy.data() + row * width;
    double mean = 0, variance = 0, mean_g = 0, mean_gx = 0;
    for (std::size_t i = 0; i < width; ++i) mean += in[i] / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i) variance += (in[i] - mean) * (in[i] - mean) / static_cast<double>(width);
    const double rstd = 1 / std::sqrt(variance + kEpsilon);
    for (std::size_t i = 0; i < width; ++i) {
      const double normal = (in[i] - mean) * rstd;
      r.out.push_back(normal * w[i] + b[i]);
      r.grad_weight[i] += grad[i] * normal;
      r.grad_bias[i] += grad[i];
      mean_g += grad[i] * w[i] / static_cast<double>(width);
      mean_gx += grad[i] * w[i] * normal / static_cast<double>(width);
    }
    for (std::size_t i = 0; i < width; ++i) {
      r.grad_in.push_back((grad[i] * w[i] - mean_g - (in[i] - mean) * rstd * mean_gx) * rstd);
    }
    r.mean.push_back(mean);
    r.rstd.push_back(rstd);
  }
  return r;
}

template <class T>
struct Case {
  explicit Case(Shape s)
      : shape(s),
        x(random_vector<T>(s.rows * s.width, 3, 1)),
        w(random_vector<T>(s.width, 1, 2)),
        b(random_vector<T>(s.width, 1, 3)),
        dy(random_vector<T>(s.rows * s.width, 1, 4)),
        expected(reference(s, doubles(x), doubles(w), doubles(b), doubles(dy))),
        out(x.size()),
        grad_in(x.size()),
        mean(static_cast<std::size_t>(s.rows)),
        rstd(mean.size()),
        grad_weight(w.size(), 0.5f),
        grad_bias(w.size(), 0.5f) {}

  void run(ThreadPool& pool, bool accumulate) {
    layernorm_forward(pool, out.data(), mean.data(), rstd.data(), x.data(), w.data(), b.data(), shape.rows, shape.width,
                      kEpsilon);
    layernorm_backward(pool, grad_in.data(), grad_weight.data(), grad_bias.data(), dy.data(), x.data(), mean.data(),
                       rstd.data(), w.data(), shape.rows, shape.width, accumulate);
  }

  Shape shape;
  std::vector<T> x, w, b, dy;
  Reference expected;
  std::vector<T> out, grad_in;
  std::vector<float> mean, rstd, grad_weight, grad_bias;
};

template <class T>
class LayerNorm : public ::testing::Test {};
TYPED_TEST_SUITE(LayerNorm, Storages);

// float32's share: values up to ~10 (rstd of a narrow row is large only where the input is constant), sums of 100 rows.
constexpr double kTolerance = 3e-5;

TYPED_TEST(LayerNorm, forward_and_backward_agree_with_float64) {
  ThreadPool pool(2);
  for (const Shape shape : kShapes) {
    Case<TypeParam> c(shape);
    c.run(pool, false);
    expect_close(c.mean, c.expected.mean, 1e-6, "mean");
    expect_close(c.rstd, c.expected.rstd, 1e-5 * c.expected.rstd[0], "rstd");
    expect_close(c.out, c.expected.out, kTolerance, "out");
    expect_close(c.grad_in, c.expected.grad_in, kTolerance, "grad_in");
    expect_close(c.grad_weight, c.expected.grad_weight, kTolerance, "grad_weight");
    expect_close(c.grad_bias, c.expected.grad_bias, kTolerance, "grad_bias");
  }
}

TYPED_TEST(LayerNorm, accumulate_adds_to_the_gradients_of_parameters) {
  ThreadPool pool(2);
  for (const Shape shape : kShapes) {
    Case<TypeParam> stored(shape), added(shape);
    stored.run(pool, false);
    added.run(pool, true);
    for (std::size_t i = 0; i < stored.grad_weight.size(); ++i) {
      ASSERT_EQ(added.grad_weight[i], 0.5f + stored.grad_weight[i]);
      ASSERT_EQ(added.grad_bias[i], 0.5f + stored.grad_bias[i]);
    }
  }
}

TYPED_TEST(LayerNorm, threads_do_not_show) {
  const auto run = [](auto pick) {
    expect_threads_do_not_show([&](ThreadPool& pool) {
      Case<TypeParam> c({100, 257});
      c.run(pool, true);
      return pick(c);
    });
  };
  run([](auto& c) { return c.out; });
  run([](auto& c) { return c.grad_in; });
  run([](auto& c) { return c.grad_weight; });
  run([](auto& c) { return c.grad_bias; });
}

}  // namespace
}  // namespace kintsugi::kernels::cpu
