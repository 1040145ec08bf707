#include "tests/engine/model/golden.hpp"

#include <fstream>

namespace kintsugi::test {

namespace {

// splitmix64 at position i of the sequence seeded by FNV-1a 64 of the name.
std::uint64_t golden_bits(std::string_view name, std::int64_t i) {
  std::uint64_t z = 0xCBF29CE484222325u;
  for (const char c : name) z = (z ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  z += 0x9E3779B97F4A7C15u * static_cast<std::uint64_t>(i + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

ModelConfig model_config(const nlohmann::json& c) {
  return {.family = c.at("family") == "gpt2" ? ModelFamily::gpt2 : ModelFamily::llama,
          .layers = c.at("layers"),
          .width = c.at("width"),
          .heads = c.at("heads"),
          .kv_heads = c.at("kv_heads"),
          .hidden = c.at("hidden"),
          .context = c.at("context"),
          .vocabulary = c.at("vocabulary"),
          .tied = c.at("tied"),
          .norm_epsilon = c.at("norm_epsilon"),
          .rope_theta = c.at("rope_theta")};
}

}  // namespace

std::vector<Golden> load_goldens() {
  std::ifstream file(KINTSUGI_GOLDEN_FILE);
  const nlohmann::json all = nlohmann::json::parse(file);
  std::vector<Golden> goldens;
  for (const auto& [name, record] : all.at("models").items()) {
    const nlohmann::json& c = record.at("config");
    goldens.push_back({name, model_config(c), {c.at("sequences"), c.at("length")}, record, all.at("optimizer")});
  }
  return goldens;
}

std::int64_t hugging_face_element(const Parameter& parameter, std::int64_t i) {
  if (!parameter.stored_transposed) return i;
  return i % parameter.columns * parameter.rows + i / parameter.columns;
}

float golden_weight(const Parameter& parameter, std::int64_t i) {
  const std::uint64_t bits = golden_bits(parameter.name, hugging_face_element(parameter, i)) >> 42;
  const float uniform = static_cast<float>(bits) * 0x1p-22f - 0.5f;
  if (parameter.is_matrix) return uniform * 0.5f;
  return uniform * 0.25f + (parameter.name.ends_with("weight") ? 1.0f : 0.0f);
}

Microbatch golden_microbatch(const Golden& golden) {
  Microbatch batch;
  const std::int64_t row = golden.shape.length + 1;
  for (std::int64_t i = 0; i < golden.shape.sequences * row; ++i) {
    const auto vocabulary = static_cast<std::uint64_t>(golden.config.vocabulary);
    const auto token = static_cast<std::int32_t>(golden_bits("tokens", i) % vocabulary);
    if (i % row < golden.shape.length) batch.tokens.push_back(token);
    if (i % row > 0) batch.targets.push_back(token);
  }
  return batch;
}

}  // namespace kintsugi::test
