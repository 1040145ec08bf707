#include "engine/model/generator.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "kernels/cpu/cpu_device.hpp"
#include "tests/engine/model/golden.hpp"

namespace kintsugi::test {
namespace {

struct Writer {
  std::unique_ptr<kernels::Device> device = kernels::cpu::make_cpu_device(2);
  std::unique_ptr<WholeModel> model;
  std::vector<std::int32_t> prompt;

  Writer(const Golden& golden, Precision precision) : prompt(golden.record.at("prompt")) {
    model = std::make_unique<WholeModel>(*device, golden.config, WholeModel::Options{precision, golden.shape, 1});
    model->set_weights(golden_weight);
  }

  std::vector<std::int32_t> generate(Precision precision, std::int64_t count, const SamplingOptions& options) {
    Result<Generator> generator = Generator::create(*device, model->layout(), precision, model->weights());
    KINTSUGI_ASSERT(generator.ok());
    std::vector<std::int32_t> tokens;
    const Result<void> done = generator->generate(model->stream(), prompt, count, options, [&](std::int32_t token) {
      tokens.push_back(token);
      return true;
    });
    KINTSUGI_ASSERT(done.ok());
    return tokens;
  }
};

TEST(SampleToken, zero_temperature_takes_the_likeliest_and_the_lower_of_equals) {
  const std::array<float, 4> logits{0.5f, 2.0f, 2.0f, -1.0f};
  EXPECT_EQ(sample_token(logits, 0.0, 0, 0.99), 1);
}

TEST(SampleToken, top_k_never_draws_beyond_the_k_likeliest) {
  const std::array<float, 4> logits{1.0f, 3.0f, 2.0f, 0.0f};
  for (int i = 0; i < 100; ++i) {
    const std::int32_t token = sample_token(logits, 5.0, 2, i / 100.0);
    EXPECT_TRUE(token == 1 || token == 2);
  }
}

TEST(SampleToken, tokens_are_drawn_in_proportion_to_their_softmax) {
  const std::array<float, 3> logits{0.0f, std::log(2.0f), std::log(5.0f)};  // 1/8, 2/8, 5/8
  std::array<int, 3> drawn{};
  for (int i = 0; i < 800; ++i) ++drawn[static_cast<std::size_t>(sample_token(logits, 1.0, 0, (i + 0.5) / 800))];
  EXPECT_EQ(drawn, (std::array<int, 3>{100, 200, 500}));
}

// The window grows through its sizes and then slides over the context, as the reference's does.
TEST(Generator, greedy_text_is_hugging_faces) {
  for (const Golden& golden : load_goldens()) {
    Writer writer(golden, Precision::float32);
    const std::vector<std::int32_t> expected = golden.record.at("continuation");
    const auto count = static_cast<std::int64_t>(expected.size());
    EXPECT_EQ(writer.generate(Precision::float32, count, {.temperature = 0.0}), expected) << golden.name;
  }
}

TEST(Generator, a_seed_names_a_text) {
  const Golden golden = load_goldens().front();
  for (const Precision precision : {Precision::float32, Precision::bfloat16}) {
    Writer writer(golden, precision);
    const SamplingOptions options{.temperature = 1.0, .top_k = 40, .seed = 7};
    const std::vector<std::int32_t> text = writer.generate(precision, 24, options);
    EXPECT_EQ(writer.generate(precision, 24, options), text);
    EXPECT_NE(writer.generate(precision, 24, {.temperature = 1.0, .top_k = 40, .seed = 8}), text);
  }
}

TEST(Generator, it_ends_when_the_caller_has_enough) {
  Writer writer(load_goldens().front(), Precision::float32);
  Result<Generator> generator =
      Generator::create(*writer.device, writer.model->layout(), Precision::float32, writer.model->weights());
  ASSERT_TRUE(generator.ok());
  int calls = 0;
  ASSERT_TRUE(
      generator->generate(writer.model->stream(), writer.prompt, 10, {}, [&](std::int32_t) { return ++calls < 3; }));
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace kintsugi::test
