#include "engine/model/layer_program.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/model/layer_program_parts.hpp"
#include "kernels/cpu/cpu_device.hpp"
#include "kernels/fake/fake_device.hpp"
#include "tests/engine/model/golden.hpp"

namespace kintsugi::test {
namespace {

constexpr Precision kPrecisions[] = {Precision::float32, Precision::bfloat16};

std::vector<float> all_gradients(WholeModel& model) {
  std::vector<float> all;
  for (const ParameterGroup& group : model.layout().groups()) {
    const std::vector<float> part = model.reduced_gradient(group.id);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// |a - b| / |b|
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, squares = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
    squares += double{b[i]} * double{b[i]};
  }
  return std::sqrt(difference / squares);
}

// Sequences [first, first + count) of a microbatch.
Microbatch part(const Microbatch& whole, std::int64_t length, std::int64_t first, std::int64_t count) {
  const auto cut = [&](const std::vector<std::int32_t>& v) {
    return std::vector(v.begin() + first * length, v.begin() + (first + count) * length);
  };
  return {cut(whole.tokens), cut(whole.targets)};
}

struct StepResult {
  float loss = 0;
  std::vector<float> gradients;
  std::vector<Digest> digests;
  bool operator==(const StepResult&) const = default;
};

// A step of two microbatches on one lane, the memory poisoned first.
StepResult step_on(kernels::Device& device, const Golden& golden, Precision precision) {
  WholeModel model(device, golden.config, {precision, golden.shape, 1});
  model.set_weights(golden_weight);
  model.poison();
  const std::vector<Microbatch> microbatches(2, golden_microbatch(golden));
  StepResult result;
  result.loss = model.run_lane(0, microbatches, 1.0f / static_cast<float>(2 * golden.shape.rows()));
  model.reduce();
  result.gradients = all_gradients(model);
  result.digests = model.update({.learning_rate = 1e-3f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.95f,
                                 .epsilon = 1e-8f,
                                 .weight_decay = 0.1f,
                                 .bias_correction1 = 0.1f,
                                 .bias_correction2 = 0.05f});
  return result;
}

TEST(LayerProgram, a_step_has_the_same_bits_on_every_number_of_threads_and_on_the_fake_device) {
  for (const Golden& golden : load_goldens()) {
    for (const Precision precision : kPrecisions) {
      const StepResult one = step_on(*kernels::cpu::make_cpu_device(1), golden, precision);
      EXPECT_TRUE(std::isfinite(one.loss));
      EXPECT_EQ(step_on(*kernels::cpu::make_cpu_device(2), golden, precision), one) << golden.name;
      EXPECT_EQ(step_on(*kernels::fake::make_fake_device({}), golden, precision), one) << golden.name;
    }
  }
}

TEST(LayerProgram, microbatches_add_up_to_the_gradient_of_them_all) {
  for (const Golden& golden : load_goldens()) {
    const auto device = kernels::cpu::make_cpu_device(2);
    const Microbatch batch = golden_microbatch(golden);
    const float scale = 1.0f / static_cast<float>(golden.shape.rows());
    WholeModel whole(*device, golden.config, {Precision::float32, golden.shape, 1});
    whole.set_weights(golden_weight);
    const float loss = whole.run_lane(0, std::span(&batch, 1), scale);
    whole.reduce();
    const std::vector<float> expected = all_gradients(whole);

    std::vector<Microbatch> parts;
    for (std::int64_t s = 0; s < golden.shape.sequences; ++s) parts.push_back(part(batch, golden.shape.length, s, 1));
    const MicrobatchShape shape{1, golden.shape.length};
    WholeModel serial(*device, golden.config, {Precision::float32, shape, 1});
    serial.set_weights(golden_weight);
    EXPECT_NEAR(serial.run_lane(0, parts, scale) / loss, 1.0, 1e-6);
    serial.reduce();
    EXPECT_LT(distance(all_gradients(serial), expected), 1e-5) << golden.name;

    WholeModel lanes(*device, golden.config, {Precision::float32, shape, golden.shape.sequences});
    lanes.set_weights(golden_weight);
    for (std::int64_t s = 0; s < golden.shape.sequences; ++s) {
      lanes.run_lane(s, std::span(parts).subspan(static_cast<std::size_t>(s), 1), scale);
    }
    lanes.reduce();
    EXPECT_LT(distance(all_gradients(lanes), expected), 1e-5) << golden.name;
  }
}

TEST(LayerProgram, evaluation_has_the_loss_of_training) {
  for (const Golden& golden : load_goldens()) {
    for (const Precision precision : kPrecisions) {
      const auto device = kernels::cpu::make_cpu_device(2);
      WholeModel model(*device, golden.config, {precision, golden.shape, 1});
      model.set_weights(golden_weight);
      const Microbatch batch = golden_microbatch(golden);
      EXPECT_FLOAT_EQ(model.evaluate(batch), model.run_lane(0, std::span(&batch, 1), 1.0f)) << golden.name;
    }
  }
}

TEST(Head, chunks_cover_the_rows_evenly_within_their_budget) {
  for (const std::int64_t vocabulary : {61, 32000, 50257, 128256, 1 << 20}) {
    for (const std::int64_t rows : {1, 63, 64, 65, 154, 1024, 2048, 4096, 16384}) {
      const std::int64_t chunk = layers::head_chunk_rows(rows, vocabulary);
      EXPECT_TRUE(chunk > 0 && chunk <= rows);
      EXPECT_TRUE(chunk <= 64 || chunk * vocabulary <= std::int64_t{1} << 25);
    }
  }
  EXPECT_EQ(layers::head_chunk_rows(1024, 50257), 512);
}

// A vocabulary so large that three sequences take several chunks.
TEST(Head, gradients_do_not_depend_on_how_rows_are_chunked) {
  Golden golden = load_goldens().front();
  golden.config.vocabulary = 400'000;
  golden.config.layers = 1;
  golden.config.width = 16;
  golden.config.heads = golden.config.kv_heads = 1;
  golden.config.hidden = 64;
  golden.shape = {3, 40};
  ASSERT_LT(layers::head_chunk_rows(120, 400'000), 120);
  ASSERT_EQ(layers::head_chunk_rows(40, 400'000), 40);
  const auto device = kernels::cpu::make_cpu_device(2);
  const Microbatch batch = golden_microbatch(golden);
  WholeModel whole(*device, golden.config, {Precision::float32, golden.shape, 1});
  whole.set_weights(golden_weight);
  const float loss = whole.run_lane(0, std::span(&batch, 1), 0.01f);
  whole.reduce();

  WholeModel serial(*device, golden.config, {Precision::float32, {1, 40}, 1});
  serial.set_weights(golden_weight);
  std::vector<Microbatch> parts;
  for (std::int64_t s = 0; s < 3; ++s) parts.push_back(part(batch, 40, s, 1));
  EXPECT_NEAR(serial.run_lane(0, parts, 0.01f) / loss, 1.0, 1e-6);
  serial.reduce();
  EXPECT_LT(distance(all_gradients(whole), all_gradients(serial)), 1e-5);
}

// 6 operations a parameter of a matrix and token, and attention's 12 a layer, channel and pair of positions.
TEST(LayerProgram, gpt2_small_costs_three_quarters_of_a_teraflop_for_a_thousand_tokens) {
  const ModelLayout layout({.family = ModelFamily::gpt2,
                            .layers = 12,
                            .width = 768,
                            .heads = 12,
                            .kv_heads = 12,
                            .hidden = 3072,
                            .context = 1024,
                            .vocabulary = 50257});
  const auto device = kernels::cpu::make_cpu_device(1);
  double flops = 0.0;
  for (std::uint32_t i = 0; i < layout.layer_count(); ++i) {
    const auto program = make_layer_program(layout, LayerId{i}, {4, 256}, Precision::float32, device->ops());
    flops += program->forward_flops() + program->backward_flops();
  }
  const double matrices = 12.0 * 12 * 768 * 768 + 50257.0 * 768;
  EXPECT_DOUBLE_EQ(flops, 6 * 1024 * matrices + 12.0 * 12 * 768 * 4 * (256 * 257 / 2));
}

}  // namespace
}  // namespace kintsugi::test
