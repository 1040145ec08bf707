#include "engine/model/layout.hpp"

#include <algorithm>
#include <cmath>

#include "base/assert.hpp"
#include "base/units.hpp"

namespace kintsugi {

namespace {

constexpr std::int64_t kShardsPerGroup = 16;
constexpr float kInitialDeviation = 0.02f;  // Radford et al. 2019, section 2.3; Llama's initializer_range

// Parameters in the order of their places; add_group() closes a run of them.
struct Builder {
  std::vector<Parameter> parameters;
  std::vector<ParameterGroup> groups;
  std::vector<Shard> shards;

  void matrix(std::string name, std::int64_t rows, std::int64_t columns, float deviation = kInitialDeviation) {
    add({.name = std::move(name),
         .group = {},
         .rows = rows,
         .columns = columns,
         .is_matrix = true,
         .initialisation = Initialisation::normal,
         .standard_deviation = deviation});
  }
  // GPT-2's linear layer: Hugging Face keeps the weight as (inputs, outputs).
  void linear(const std::string& name, std::int64_t rows, std::int64_t columns, float deviation = kInitialDeviation) {
    matrix(name + ".weight", rows, columns, deviation);
    parameters.back().stored_transposed = true;
    vector(name + ".bias", rows, Initialisation::zeros);
  }
  void vector(std::string name, std::int64_t count, Initialisation initialisation) {
    add({.name = std::move(name), .group = {}, .rows = count, .initialisation = initialisation});
  }
  void layer_norm(const std::string& name, std::int64_t width) {
    vector(name + ".weight", width, Initialisation::ones);
    vector(name + ".bias", width, Initialisation::zeros);
  }

  // All parameters since the last group, used by `uses`.
  void add_group(std::vector<LayerId> uses) {
    ParameterGroup group{
        .id = {static_cast<std::uint32_t>(groups.size())}, .owner = uses.front(), .uses = std::move(uses)};
    if (!groups.empty()) group.first_parameter = groups.back().first_parameter + groups.back().parameter_count;
    group.parameter_count = static_cast<std::uint32_t>(parameters.size()) - group.first_parameter;
    group.count = next_offset_;
    cut(group);
    groups.push_back(std::move(group));
    next_offset_ = 0;
  }

 private:
  void add(Parameter parameter) {
    parameter.group = {static_cast<std::uint32_t>(groups.size())};
    parameter.offset = next_offset_;
    next_offset_ += parameter.count();
    parameters.push_back(std::move(parameter));
  }

  void cut(ParameterGroup& group) {
    const std::int64_t pieces = std::max(kShardsPerGroup, ceil_div(group.count, kMaxShardElements));
    const std::int64_t size = ceil_div(ceil_div(group.count, pieces), kShardAlignment) * kShardAlignment;
    group.first_shard = static_cast<std::uint32_t>(shards.size());
    for (std::int64_t offset = 0; offset < group.count; offset += size) {
      shards.push_back({.id = {static_cast<std::uint32_t>(shards.size())},
                        .group = group.id,
                        .offset = offset,
                        .count = std::min(size, group.count - offset)});
    }
    group.shard_count = static_cast<std::uint32_t>(shards.size()) - group.first_shard;
  }

  std::int64_t next_offset_ = 0;
};

// Projections back into the residual stream start smaller, so that its variance does not grow with depth (GPT-2).
float residual_deviation(const ModelConfig& c) {
  return static_cast<float>(0.02 / std::sqrt(2.0 * static_cast<double>(c.layers)));
}

void gpt2_block(Builder& b, const ModelConfig& c, const std::string& prefix) {
  b.layer_norm(prefix + "ln_1", c.width);
  b.linear(prefix + "attn.c_attn", 3 * c.width, c.width);
  b.linear(prefix + "attn.c_proj", c.width, c.width, residual_deviation(c));
  b.layer_norm(prefix + "ln_2", c.width);
  b.linear(prefix + "mlp.c_fc", c.hidden, c.width);
  b.linear(prefix + "mlp.c_proj", c.width, c.hidden, residual_deviation(c));
}

// q, k and v lie one after the other, and so do gate and up: each run is one packed matrix for one product.
void llama_block(Builder& b, const ModelConfig& c, const std::string& prefix) {
  const std::int64_t kv_width = c.kv_heads * c.head_dim();
  b.vector(prefix + "input_layernorm.weight", c.width, Initialisation::ones);
  b.matrix(prefix + "self_attn.q_proj.weight", c.width, c.width);
  b.matrix(prefix + "self_attn.k_proj.weight", kv_width, c.width);
  b.matrix(prefix + "self_attn.v_proj.weight", kv_width, c.width);
  b.matrix(prefix + "self_attn.o_proj.weight", c.width, c.width, residual_deviation(c));
  b.vector(prefix + "post_attention_layernorm.weight", c.width, Initialisation::ones);
  b.matrix(prefix + "mlp.gate_proj.weight", c.hidden, c.width);
  b.matrix(prefix + "mlp.up_proj.weight", c.hidden, c.width);
  b.matrix(prefix + "mlp.down_proj.weight", c.width, c.hidden, residual_deviation(c));
}

}  // namespace

ModelLayout::ModelLayout(const ModelConfig& config) : config_(config) {
  const bool gpt2 = config.family == ModelFamily::gpt2;
  const LayerId embedding{0};
  const LayerId head{layer_count() - 1};
  Builder b;
  b.matrix(gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight", config.vocabulary, config.width);
  b.add_group(config.tied ? std::vector{embedding, head} : std::vector{embedding});
  if (gpt2) {
    b.matrix("transformer.wpe.weight", config.context, config.width);
    b.add_group({embedding});
  }
  for (std::int64_t i = 0; i < config.layers; ++i) {
    if (gpt2)
      gpt2_block(b, config, "transformer.h." + std::to_string(i) + ".");
    else
      llama_block(b, config, "model.layers." + std::to_string(i) + ".");
    b.add_group({LayerId{static_cast<std::uint32_t>(i + 1)}});
  }
  if (gpt2)
    b.layer_norm("transformer.ln_f", config.width);
  else
    b.vector("model.norm.weight", config.width, Initialisation::ones);
  if (!config.tied) b.matrix("lm_head.weight", config.vocabulary, config.width);
  b.add_group({head});
  parameters_ = std::move(b.parameters);
  groups_ = std::move(b.groups);
  shards_ = std::move(b.shards);
}

std::uint32_t ModelLayout::layer_count() const {
  return static_cast<std::uint32_t>(config_.layers) + 2;
}

LayerKind ModelLayout::kind(LayerId layer) const {
  KINTSUGI_ASSERT(layer.value < layer_count());
  if (layer.value == 0) return LayerKind::embedding;
  return layer.value + 1 == layer_count() ? LayerKind::head : LayerKind::block;
}

std::vector<GroupId> ModelLayout::groups_used_by(LayerId layer) const {
  std::vector<GroupId> used;
  for (const ParameterGroup& group : groups_) {
    if (std::ranges::find(group.uses, layer) != group.uses.end()) used.push_back(group.id);
  }
  return used;
}

const Parameter& ModelLayout::parameter(std::string_view name) const {
  const auto found = std::ranges::find(parameters_, name, &Parameter::name);
  KINTSUGI_ASSERT_MSG(found != parameters_.end(), "no parameter of this name in the layout");
  return *found;
}

std::int64_t ModelLayout::parameter_count() const {
  std::int64_t count = 0;
  for (const ParameterGroup& group : groups_) count += group.count;
  return count;
}

}  // namespace kintsugi
