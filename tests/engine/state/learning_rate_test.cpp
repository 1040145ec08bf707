#include "engine/state/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace kintsugi {
namespace {

OptimizerConfig config(LearningRateDecay decay) {
  return {.learning_rate = 1e-3, .warmup_steps = 10, .decay = decay, .decay_steps = 110, .minimum_learning_rate = 1e-4};
}

TEST(LearningRate, warm_up_is_linear_and_reaches_the_full_rate_at_its_last_step) {
  for (const auto decay : {LearningRateDecay::none, LearningRateDecay::linear, LearningRateDecay::cosine}) {
    EXPECT_FLOAT_EQ(learning_rate(config(decay), Step{1}), 1e-4f);
    EXPECT_FLOAT_EQ(learning_rate(config(decay), Step{5}), 5e-4f);
    EXPECT_FLOAT_EQ(learning_rate(config(decay), Step{10}), 1e-3f);
  }
}

TEST(LearningRate, decay_ends_at_the_minimum_and_stays_there) {
  for (const auto decay : {LearningRateDecay::linear, LearningRateDecay::cosine}) {
    EXPECT_FLOAT_EQ(learning_rate(config(decay), Step{60}), 5.5e-4f);  // half-way
    EXPECT_EQ(learning_rate(config(decay), Step{110}), 1e-4f);
    EXPECT_EQ(learning_rate(config(decay), Step{1'000'000}), 1e-4f);
    for (std::uint64_t s = 11; s <= 110; ++s) {
      EXPECT_LT(learning_rate(config(decay), Step{s}), learning_rate(config(decay), Step{s - 1}));
    }
  }
  EXPECT_EQ(learning_rate(config(LearningRateDecay::none), Step{1'000'000}), 1e-3f);
}

TEST(LearningRate, no_warm_up_starts_at_the_full_rate) {
  OptimizerConfig c = config(LearningRateDecay::cosine);
  c.warmup_steps = 0;
  EXPECT_NEAR(learning_rate(c, Step{1}), 1e-3, 1e-6);
  c.decay_steps = 0;
  EXPECT_EQ(learning_rate(c, Step{1}), 1e-4f);
}

TEST(LearningRate, the_portable_cosine_is_that_of_the_library) {
  for (int i = 0; i <= 100'000; ++i) {
    const double x = i / 100'000.0;
    const long double expected = std::cos(std::numbers::pi_v<long double> * x);
    ASSERT_LT(std::abs(portable_cos_pi(x) - expected), 5e-16L) << x;
  }
  EXPECT_EQ(portable_cos_pi(0), 1.0);
  EXPECT_EQ(portable_cos_pi(1), -1.0);
}

TEST(LearningRate, bias_corrections_are_those_of_the_library_to_float32) {
  for (const double beta : {0.9, 0.95, 0.999}) {
    for (std::uint64_t t = 1; t < 100'000; t = t * 3 / 2 + 1) {
      // Both round a float64 whose error is below t * 2^-52; half a float32 step is 2^-25 of it.
      EXPECT_FLOAT_EQ(bias_correction(beta, t), static_cast<float>(1.0 - std::pow(beta, static_cast<double>(t))));
    }
  }
  EXPECT_EQ(bias_correction(0.0, 1), 1.0f);
}

TEST(LearningRate, clipping_scales_only_what_is_too_long) {
  EXPECT_EQ(clip_scale(0.5, 1.0), 1.0f);
  EXPECT_EQ(clip_scale(1.0, 1.0), 1.0f);
  EXPECT_EQ(clip_scale(4.0, 1.0), 0.25f);
  EXPECT_EQ(clip_scale(4.0, 0.0), 1.0f);
}

TEST(LearningRate, the_scalars_of_an_update_are_all_there) {
  OptimizerConfig c = config(LearningRateDecay::none);
  c.weight_decay = 0.1;
  c.clip = 1.0;
  const kernels::AdamwScalars s = update_scalars(c, Step{20}, 1, 2.0);
  EXPECT_EQ(s.learning_rate, 1e-3f);
  EXPECT_FLOAT_EQ(s.bias_correction1, 0.1f);
  EXPECT_FLOAT_EQ(s.bias_correction2, 0.05f);
  EXPECT_EQ(s.weight_decay, 0.1f);
  EXPECT_EQ(s.clip_scale, 0.5f);
  EXPECT_EQ(s.epsilon, 1e-8f);
}

TEST(DecayRanges, only_matrices_decay_and_ranges_are_cut_at_the_shard) {
  const std::vector<Parameter> parameters{
      {.name = "norm", .group = GroupId{3}, .offset = 0, .rows = 100},
      {.name = "a", .group = GroupId{3}, .offset = 100, .rows = 10, .columns = 40, .is_matrix = true},
      {.name = "b", .group = GroupId{3}, .offset = 500, .rows = 10, .columns = 50, .is_matrix = true},
      {.name = "bias", .group = GroupId{3}, .offset = 1000, .rows = 50},
      {.name = "c", .group = GroupId{3}, .offset = 1050, .rows = 5, .columns = 10, .is_matrix = true}};
  const auto of_shard = [&](std::int64_t offset, std::int64_t count) {
    std::vector<std::pair<std::int64_t, std::int64_t>> found;
    for (const auto r : decay_ranges(parameters, {.id = {}, .group = GroupId{3}, .offset = offset, .count = count})) {
      found.emplace_back(r.begin, r.end);
    }
    return found;
  };
  using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(of_shard(0, 1100), (Ranges{{100, 1000}, {1050, 1100}}));
  EXPECT_EQ(of_shard(0, 100), Ranges{});
  EXPECT_EQ(of_shard(300, 100), (Ranges{{0, 100}}));
  EXPECT_EQ(of_shard(900, 160), (Ranges{{0, 100}, {150, 160}}));
}

}  // namespace
}  // namespace kintsugi
