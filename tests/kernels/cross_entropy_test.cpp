#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/kernels/float64_reference.hpp"

namespace kintsugi::kernels::cpu {
namespace {

struct Reference {
  std::vector<double> losses;
  std::vector<double> gradient;  // (softmax - onehot) * scale
};

template <class T>
Reference reference(const std::vector<T>& logits, const std::vector<std::int32_t>& targets, std::size_t vocabulary,
                    double scale) {
  Reference out;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    std::vector<double> x;
    for (std::size_t i = 0; i < vocabulary; ++i) x.push_back(to_double(logits[r * vocabulary + i]));
    const double maximum = *std::max_element(x.begin(), x.end());
    double total = 0;
    for (const double v : x) total += std::exp(v - maximum);
    const auto target = static_cast<std::size_t>(targets[r]);
    out.losses.push_back(std::log(total) + maximum - x[target]);
    for (std::size_t i = 0; i < vocabulary; ++i) {
      out.gradient.push_back((std::exp(x[i] - maximum) / total - (i == target ? 1 : 0)) * scale);
    }
  }
  return out;
}

template <class T>
class CrossEntropy : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropy, Storages);

// One class, odd sizes, whole vectors, more rows than a piece holds, GPT-2's.
constexpr std::int64_t kVocabularies[] = {1, 5, 16, 67, 128, 1000, 50257};

TYPED_TEST(CrossEntropy, loss_and_gradient_are_those_of_the_definition) {
  ThreadPool pool(2);
  for (const std::int64_t vocabulary : kVocabularies) {
    const std::int64_t rows = vocabulary > 1000 ? 3 : 37;
    auto logits = random_vector<TypeParam>(rows * vocabulary, 9, 1);
    const auto targets = random_indices(rows, vocabulary, 2);
    const Reference expected = reference(logits, targets, static_cast<std::size_t>(vocabulary), 0.25);
    std::vector<float> losses(targets.size()), alone(targets.size());
    cross_entropy_forward(pool, alone.data(), logits.data(), targets.data(), rows, vocabulary);
    cross_entropy(pool, losses.data(), logits.data(), targets.data(), rows, vocabulary, 0.25f);
    // float32 sums of up to 50257 terms in 64 chains, then a logarithm: 2e-6 of at most about 30.
    expect_close(losses, expected.losses, 1e-5, "loss");
    expect_close(alone, expected.losses, 1e-5, "loss alone");
    expect_close(logits, expected.gradient, 1e-6, "gradient");
  }
}

TYPED_TEST(CrossEntropy, the_loss_alone_has_the_same_bits_as_the_fused_one) {
  ThreadPool pool(2);
  auto logits = random_vector<TypeParam>(20 * 333, 5, 1);
  const auto targets = random_indices(20, 333, 2);
  std::vector<float> losses(20), alone(20);
  cross_entropy_forward(pool, alone.data(), logits.data(), targets.data(), 20, 333);
  cross_entropy(pool, losses.data(), logits.data(), targets.data(), 20, 333, 1.0f);
  EXPECT_TRUE(same_bits(losses, alone));
}

TYPED_TEST(CrossEntropy, threads_do_not_show) {
  const auto logits = random_vector<TypeParam>(64 * 5003, 5, 1);
  const auto targets = random_indices(64, 5003, 2);
  expect_threads_do_not_show([&](ThreadPool& pool) {
    auto out = logits;
    std::vector<float> losses(64);
    cross_entropy(pool, losses.data(), out.data(), targets.data(), 64, 5003, 1.0f / 64);
    for (const float loss : losses) out.push_back(rounded<TypeParam>(loss));
    return out;
  });
}

TEST(CrossEntropyEdges, a_nan_logit_shows_in_the_loss) {
  ThreadPool pool(1);
  for (const std::size_t at : {0u, 17u, 99u}) {
    std::vector<float> logits(100, 1.0f);
    logits[at] = std::numeric_limits<float>::quiet_NaN();
    const std::int32_t target = 3;
    float loss = 0;
    cross_entropy(pool, &loss, logits.data(), &target, 1, 100, 1.0f);
    EXPECT_TRUE(std::isnan(loss)) << at;
  }
}

TEST(CrossEntropyEdges, huge_logits_do_not_overflow) {
  ThreadPool pool(1);
  std::vector<float> logits = {1e30f, -1e30f, 1e30f};
  const std::int32_t target = 0;
  float loss = 0;
  cross_entropy(pool, &loss, logits.data(), &target, 1, 3, 1.0f);
  EXPECT_FLOAT_EQ(loss, std::log(2.0f));
  EXPECT_EQ(logits, (std::vector<float>{-0.5f, 0.0f, 0.5f}));
}

TEST(CrossEntropyEdges, the_gradient_is_the_slope_of_the_loss) {
  ThreadPool pool(1);
  const auto logits = random_vector<float>(3 * 11, 2, 3);
  const auto targets = random_indices(3, 11, 4);
  std::vector<float> grad = logits, losses(3);
  cross_entropy(pool, losses.data(), grad.data(), targets.data(), 3, 11, 1.0f);
  const auto loss = [&](const std::vector<float>& x) {
    cross_entropy_forward(pool, losses.data(), x.data(), targets.data(), 3, 11);
    return to_double(losses[0]) + to_double(losses[1]) + to_double(losses[2]);
  };
  for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(grad[i], numerical_slope(logits, i, loss), 2e-4) << i;
}

TEST(CrossEntropyDeathTest, a_target_outside_the_vocabulary_is_a_bug) {
  ThreadPool pool(1);
  const std::vector<float> logits(10);
  const std::int32_t target = 10;
  float loss = 0;
  EXPECT_DEATH(cross_entropy_forward(pool, &loss, logits.data(), &target, 1, 10), "outside the vocabulary");
}

}  // namespace
}  // namespace kintsugi::kernels::cpu
