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
  std::vector<double> out, rstd, grad_in, grad_weight;
};

Reference reference(Shape s, const std::vector<double>& x, const std::vector<double>& w,
                    const std::vector<double>& dy) {
  const auto width = static_cast<std::size_t>(s.width);
  Reference r;
  r.grad_weight.assign(width, 0);
  for (std::size_t row = 0; row < static_cast<std::size_t>(s.rows); ++row) {
    const double* in = x.data() + row * width;
    const double* grad = dy.data() + row * width;
    double square = 0, mean_gx = 0;
    for (std::size_t i = 0; i < width; ++i) square += in[i] * in[i] / static_cast<double>(width);
    const double rstd = 1 / std::sqrt(square + kEpsilon);
    for (std::size_t i = 0; i < width; ++i) {
      r.out.push_back(in[i] * rstd * w[i]);
      r.grad_weight[i] += grad[i] * in[i] * rstd;
      mean_gx += grad[i] * w[i] * in[i] * rstd / static_cast<double>(width);
    }
    for (std::size_t i = 0; i < width; ++i) r.grad_in.push_back((grad[i] * w[i] - in[i] * rstd * mean_gx) * rstd);
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
        dy(random_vector<T>(s.rows * s.width, 1, 4)),
        expected(reference(s, doubles(x), doubles(w), doubles(dy))),
        out(x.size()),
        grad_in(x.size()),
        rstd(static_cast<std::size_t>(s.rows)),
        grad_weight(w.size(), 0.5f) {}

  void run(ThreadPool& pool, bool accumulate) {
    rmsnorm_forward(pool, out.data(), rstd.data(), x.data(), w.data(), shape.rows, shape.width, kEpsilon);
    rmsnorm_backward(pool, grad_in.data(), grad_weight.data(), dy.data(), x.data(), rstd.data(), w.data(), shape.rows,
                     shape.width, accumulate);
  }

  Shape shape;
  std::vector<T> x, w, dy;
  Reference expected;
  std::vector<T> out, grad_in;
  std::vector<float> rstd, grad_weight;
};

template <class T>
class RmsNorm : public ::testing::Test {};
TYPED_TEST_SUITE(RmsNorm, Storages);

constexpr double kTolerance = 3e-5;  // float32's share: values up to ~10, sums of 100 rows

TYPED_TEST(RmsNorm, forward_and_backward_agree_with_float64) {
  ThreadPool pool(2);
  for (const Shape shape : kShapes) {
    Case<TypeParam> c(shape);
    c.run(pool, false);
    expect_close(c.rstd, c.expected.rstd, 1e-6, "rstd");
    expect_close(c.out, c.expected.out, kTolerance, "out");
    expect_close(c.grad_in, c.expected.grad_in, kTolerance, "grad_in");
    expect_close(c.grad_weight, c.expected.grad_weight, kTolerance, "grad_weight");
  }
}

TYPED_TEST(RmsNorm, accumulate_adds_to_the_gradient_of_the_weight) {
  ThreadPool pool(2);
  Case<TypeParam> stored({17, 257}), added({17, 257});
  stored.run(pool, false);
  added.run(pool, true);
  for (std::size_t i = 0; i < stored.grad_weight.size(); ++i) {
    ASSERT_EQ(added.grad_weight[i], 0.5f + stored.grad_weight[i]);
  }
}

TYPED_TEST(RmsNorm, threads_do_not_show) {
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
}

}  // namespace
}  // namespace kintsugi::kernels::cpu
