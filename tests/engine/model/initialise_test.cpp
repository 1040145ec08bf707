#include "engine/model/initialise.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/digest.hpp"
#include "base/philox.hpp"

namespace kintsugi {
namespace {

constexpr ModelConfig kGpt2{.family = ModelFamily::gpt2,
                            .layers = 2,
                            .width = 128,
                            .heads = 4,
                            .kv_heads = 4,
                            .hidden = 512,
                            .context = 64,
                            .vocabulary = 300,
                            .tied = true,
                            .seed = 11};
constexpr ModelConfig kLlama{.family = ModelFamily::llama,
                             .layers = 2,
                             .width = 128,
                             .heads = 4,
                             .kv_heads = 2,
                             .hidden = 384,
                             .context = 64,
                             .vocabulary = 300,
                             .tied = false,
                             .seed = 11};

std::vector<float> group_values(const ModelLayout& layout, const ParameterGroup& group) {
  std::vector<float> values(static_cast<std::size_t>(group.count), std::nanf(""));
  for (std::uint32_t i = 0; i < group.shard_count; ++i) {
    const Shard& shard = layout.shard({group.first_shard + i});
    initialise_shard(
        layout, shard,
        std::span(values).subspan(static_cast<std::size_t>(shard.offset), static_cast<std::size_t>(shard.count)));
  }
  return values;
}

std::vector<float> parameter_values(const ModelLayout& layout, const char* name) {
  const Parameter& p = layout.parameter(name);
  const std::vector<float> group = group_values(layout, layout.group(p.group));
  return {group.begin() + p.offset, group.begin() + p.offset + p.count()};
}

double deviation_of(const std::vector<float>& values) {
  double squares = 0;
  for (const float v : values) squares += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

TEST(Initialise, a_value_is_a_function_of_seed_name_and_element_alone) {
  const char* const name = "transformer.h.1.mlp.c_fc.weight";
  const std::vector<float> values = parameter_values(ModelLayout(kGpt2), name);
  const std::uint64_t digest = digest_of(std::as_bytes(std::span(name, std::strlen(name)))).low;
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{4097}, values.size() - 1}) {
    const double x = standard_normal(philox_u64(philox_key(kGpt2.seed), digest, i));
    EXPECT_EQ(values[i], static_cast<float>(static_cast<double>(0.02f) * x));
  }
  ModelConfig deeper = kGpt2;
  deeper.layers = 3;
  deeper.vocabulary = 500;
  EXPECT_EQ(parameter_values(ModelLayout(deeper), name), values) << "the rest of the model does not show";
}

TEST(Initialise, the_way_shards_are_cut_does_not_show) {
  const ModelLayout layout(kGpt2);
  const ParameterGroup& group = layout.groups()[2];
  const std::vector<float> whole = group_values(layout, group);
  std::vector<float> pieces(whole.size());
  for (std::int64_t offset = 0; offset < group.count; offset += 1000) {
    const std::int64_t count = std::min<std::int64_t>(1000, group.count - offset);
    initialise_shard(layout, Shard{.group = group.id, .offset = offset, .count = count},
                     std::span(pieces).subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count)));
  }
  EXPECT_EQ(std::memcmp(pieces.data(), whole.data(), whole.size() * sizeof(float)), 0);
}

TEST(Initialise, gpt2_starts_with_small_matrices_smaller_residual_projections_unit_norms_and_no_biases) {
  const ModelLayout layout(kGpt2);
  // The deviation of n normal values has the standard error 1 / sqrt(2 n); n >= 8192 here, so 4 % are five of them.
  EXPECT_NEAR(deviation_of(parameter_values(layout, "transformer.wte.weight")), 0.02, 0.02 * 0.04);
  EXPECT_NEAR(deviation_of(parameter_values(layout, "transformer.wpe.weight")), 0.02, 0.02 * 0.04);
  EXPECT_NEAR(deviation_of(parameter_values(layout, "transformer.h.0.attn.c_attn.weight")), 0.02, 0.02 * 0.04);
  EXPECT_NEAR(deviation_of(parameter_values(layout, "transformer.h.0.attn.c_proj.weight")), 0.01, 0.01 * 0.04);
  EXPECT_NEAR(deviation_of(parameter_values(layout, "transformer.h.1.mlp.c_proj.weight")), 0.01, 0.01 * 0.04);
  for (const float v : parameter_values(layout, "transformer.ln_f.weight")) EXPECT_EQ(v, 1.0f);
  for (const float v : parameter_values(layout, "transformer.h.0.mlp.c_fc.bias")) EXPECT_EQ(v, 0.0f);
}

TEST(Initialise, llama_starts_alike) {
  const ModelLayout layout(kLlama);
  EXPECT_NEAR(deviation_of(parameter_values(layout, "lm_head.weight")), 0.02, 0.02 * 0.04);
  EXPECT_NEAR(deviation_of(parameter_values(layout, "model.layers.1.mlp.down_proj.weight")), 0.01, 0.01 * 0.04);
  for (const float v : parameter_values(layout, "model.layers.0.input_layernorm.weight")) EXPECT_EQ(v, 1.0f);
}

TEST(Initialise, another_seed_gives_another_model) {
  ModelConfig other = kGpt2;
  other.seed = 12;
  EXPECT_NE(parameter_values(ModelLayout(other), "transformer.wte.weight"),
            parameter_values(ModelLayout(kGpt2), "transformer.wte.weight"));
}

}  // namespace
}  // namespace kintsugi
