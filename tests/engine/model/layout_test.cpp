#include "engine/model/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/model/presets.hpp"

namespace kintsugi {
namespace {

ModelConfig model(ModelFamily family, bool tied, std::int64_t layers, std::int64_t width) {
  ModelConfig m{.family = family,
                .layers = layers,
                .width = width,
                .heads = 4,
                .kv_heads = 4,
                .hidden = 4 * width,
                .context = 64,
                .vocabulary = 1000,
                .tied = tied};
  if (family == ModelFamily::llama) m.kv_heads = 2;
  return m;
}

std::vector<ModelConfig> many_models() {
  std::vector<ModelConfig> models;
  for (const ModelFamily family : {ModelFamily::gpt2, ModelFamily::llama}) {
    for (const bool tied : {false, true}) {
      for (const std::int64_t layers : {1, 2, 7}) {
        for (const std::int64_t width : {8, 64, 136, 1024}) models.push_back(model(family, tied, layers, width));
      }
    }
  }
  for (const char* const name : {"gpt2-124m", "gpt2-1558m", "llama-3.2-1b", "llama-2-70b"}) {
    models.push_back(*find_preset(name));
  }
  return models;
}

TEST(ModelLayout, parameters_fill_each_group_without_gaps_and_in_order) {
  for (const ModelConfig& m : many_models()) {
    const ModelLayout layout(m);
    std::uint32_t next = 0;
    for (const ParameterGroup& group : layout.groups()) {
      EXPECT_EQ(group.first_parameter, next);
      std::int64_t offset = 0;
      for (; next < group.first_parameter + group.parameter_count; ++next) {
        const Parameter& p = layout.parameters()[next];
        EXPECT_EQ(p.group, group.id);
        EXPECT_EQ(p.offset, offset) << p.name;
        EXPECT_EQ(&layout.parameter(p.name), &p);
        offset += p.count();
      }
      EXPECT_EQ(offset, group.count);
    }
    EXPECT_EQ(next, layout.parameters().size());
  }
}

TEST(ModelLayout, shards_cut_each_group_on_aligned_boundaries_into_equal_pieces) {
  for (const ModelConfig& m : many_models()) {
    const ModelLayout layout(m);
    std::uint32_t next = 0;
    for (const ParameterGroup& group : layout.groups()) {
      EXPECT_EQ(group.first_shard, next);
      ASSERT_GE(group.shard_count, 1u);
      EXPECT_LE(group.shard_count, std::max<std::int64_t>(16, group.count / kMaxShardElements + 1));
      std::int64_t offset = 0;
      for (; next < group.first_shard + group.shard_count; ++next) {
        const Shard& shard = layout.shard({next});
        EXPECT_EQ(shard.id.value, next);
        EXPECT_EQ(shard.group, group.id);
        EXPECT_EQ(shard.offset, offset);
        EXPECT_EQ(shard.offset % kShardAlignment, 0);
        EXPECT_GT(shard.count, 0);
        EXPECT_LE(shard.count, kMaxShardElements);
        const bool last = next + 1 == group.first_shard + group.shard_count;
        EXPECT_TRUE(last || shard.count == layout.shard({group.first_shard}).count);
        offset += shard.count;
      }
      EXPECT_EQ(offset, group.count);
    }
    EXPECT_EQ(next, layout.shards().size());
  }
}

TEST(ModelLayout, every_layer_owns_a_group_and_uses_start_with_the_owner) {
  for (const ModelConfig& m : many_models()) {
    const ModelLayout layout(m);
    std::set<std::uint32_t> owners;
    for (const ParameterGroup& group : layout.groups()) {
      owners.insert(group.owner.value);
      EXPECT_EQ(group.uses.front(), group.owner);
      EXPECT_TRUE(std::ranges::is_sorted(group.uses));
    }
    EXPECT_EQ(owners.size(), layout.layer_count());
  }
}

TEST(ModelLayout, a_tied_table_has_two_uses_and_an_untied_head_has_its_own) {
  for (const ModelFamily family : {ModelFamily::gpt2, ModelFamily::llama}) {
    const ModelLayout tied(model(family, true, 3, 64));
    const LayerId head{4};
    EXPECT_EQ(tied.kind(head), LayerKind::head);
    EXPECT_EQ(tied.group({0}).uses, (std::vector<LayerId>{{0}, head}));
    const GroupId norm{static_cast<std::uint32_t>(tied.groups().size() - 1)};
    EXPECT_EQ(tied.groups_used_by(head), (std::vector<GroupId>{{0}, norm}));

    const ModelLayout untied(model(family, false, 3, 64));
    EXPECT_EQ(untied.group({0}).uses, (std::vector<LayerId>{{0}}));
    EXPECT_EQ(untied.groups_used_by(head).size(), 1u);
    EXPECT_EQ(untied.parameter("lm_head.weight").group, untied.groups().back().id);
    EXPECT_EQ(untied.parameter_count() - tied.parameter_count(), 1000 * 64);
  }
}

TEST(ModelLayout, what_is_multiplied_together_lies_together) {
  const ModelLayout llama(model(ModelFamily::llama, false, 2, 64));
  const auto end = [&](const char* name) { return llama.parameter(name).offset + llama.parameter(name).count(); };
  EXPECT_EQ(llama.parameter("model.layers.1.self_attn.k_proj.weight").offset,
            end("model.layers.1.self_attn.q_proj.weight"));
  EXPECT_EQ(llama.parameter("model.layers.1.self_attn.v_proj.weight").offset,
            end("model.layers.1.self_attn.k_proj.weight"));
  EXPECT_EQ(llama.parameter("model.layers.1.mlp.up_proj.weight").offset, end("model.layers.1.mlp.gate_proj.weight"));
  EXPECT_EQ(llama.parameter("model.layers.1.self_attn.k_proj.weight").rows, 32);
  const ModelLayout gpt2(model(ModelFamily::gpt2, true, 2, 64));
  const Parameter& qkv = gpt2.parameter("transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(qkv.rows, 3 * 64);
  EXPECT_TRUE(qkv.stored_transposed);
  EXPECT_FALSE(gpt2.parameter("transformer.wte.weight").stored_transposed);
}

// Counts published with the models: GPT-2's by Hugging Face, Llama's in their papers and model cards.
TEST(ModelLayout, counts_of_the_presets_are_those_published) {
  const std::pair<const char*, std::int64_t> published[] = {
      {"gpt2-124m", 124'439'808},      {"gpt2-355m", 354'823'168},      {"gpt2-774m", 774'030'080},
      {"gpt2-1558m", 1'557'611'200},   {"llama-7b", 6'738'415'616},     {"llama-13b", 13'015'864'320},
      {"llama-2-7b", 6'738'415'616},   {"llama-2-13b", 13'015'864'320}, {"llama-2-70b", 68'976'648'192},
      {"llama-3-8b", 8'030'261'248},   {"llama-3-70b", 70'553'706'496}, {"llama-3-405b", 405'853'388'800},
      {"llama-3.2-1b", 1'235'814'400}, {"llama-3.2-3b", 3'212'749'824}};
  EXPECT_EQ(std::size(published), preset_names().size());
  for (const auto& [name, count] : published)
    EXPECT_EQ(ModelLayout(*find_preset(name)).parameter_count(), count) << name;
}

TEST(ModelLayout, a_model_of_a_large_cluster_has_shards_for_every_member) {
  const ModelLayout layout(*find_preset("llama-3-405b"));
  EXPECT_EQ(layout.shards().size(), 96'889U);
  for (const Shard& shard : layout.shards()) EXPECT_LE(shard.count, kMaxShardElements);
}

TEST(ModelLayout, only_matrices_take_weight_decay) {
  const ModelLayout layout(model(ModelFamily::gpt2, true, 1, 64));
  for (const Parameter& p : layout.parameters()) {
    EXPECT_EQ(p.is_matrix, p.columns > 1) << p.name;
    EXPECT_EQ(p.is_matrix, p.initialisation == Initialisation::normal) << p.name;
  }
}

}  // namespace
}  // namespace kintsugi
