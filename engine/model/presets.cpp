#include "engine/model/presets.hpp"

namespace kintsugi {

namespace {

struct Preset {
  std::string_view name;
  ModelConfig shape;
};

ModelConfig gpt2(std::int64_t layers, std::int64_t width, std::int64_t heads) {
  return {.family = ModelFamily::gpt2,
          .layers = layers,
          .width = width,
          .heads = heads,
          .kv_heads = heads,
          .hidden = 4 * width,
          .context = 1024,
          .vocabulary = 50257,
          .tied = true};
}

// GPT-2: Radford et al. 2019, table 2, with the parameter counts and heads of the published checkpoints. Llama: Touvron
// et al. 2023a, table 2 (1) and 2023b, table 1 (2); Dubey et al. 2024, table 3 (3, its context before 3.1); 3.2: the
// published configuration. Rotary scaling, with which 3.1 and later reach contexts beyond 8192, does not exist here, so
// 3.2 has the context it was scaled from.
const std::vector<Preset>& table() {
  constexpr auto kLlama = ModelFamily::llama;
  static const std::vector<Preset> presets = {
      {"gpt2-124m", gpt2(12, 768, 12)},
      {"gpt2-355m", gpt2(24, 1024, 16)},
      {"gpt2-774m", gpt2(36, 1280, 20)},
      {"gpt2-1558m", gpt2(48, 1600, 25)},
      {"llama-7b", {kLlama, 32, 4096, 32, 32, 11008, 2048, 32000, false, 1e-6f, 1e4f}},
      {"llama-13b", {kLlama, 40, 5120, 40, 40, 13824, 2048, 32000, false, 1e-6f, 1e4f}},
      {"llama-2-7b", {kLlama, 32, 4096, 32, 32, 11008, 4096, 32000, false, 1e-5f, 1e4f}},
      {"llama-2-13b", {kLlama, 40, 5120, 40, 40, 13824, 4096, 32000, false, 1e-5f, 1e4f}},
      {"llama-2-70b", {kLlama, 80, 8192, 64, 8, 28672, 4096, 32000, false, 1e-5f, 1e4f}},
      {"llama-3-8b", {kLlama, 32, 4096, 32, 8, 14336, 8192, 128256, false, 1e-5f, 5e5f}},
      {"llama-3-70b", {kLlama, 80, 8192, 64, 8, 28672, 8192, 128256, false, 1e-5f, 5e5f}},
      {"llama-3-405b", {kLlama, 126, 16384, 128, 8, 53248, 8192, 128256, false, 1e-5f, 5e5f}},
      {"llama-3.2-1b", {kLlama, 16, 2048, 32, 8, 8192, 8192, 128256, true, 1e-5f, 5e5f}},
      {"llama-3.2-3b", {kLlama, 28, 3072, 24, 8, 8192, 8192, 128256, true, 1e-5f, 5e5f}},
  };
  return presets;
}

}  // namespace

std::optional<ModelConfig> find_preset(std::string_view name) {
  for (const Preset& preset : table()) {
    if (preset.name == name) return preset.shape;
  }
  return {};
}

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : table()) names.push_back(preset.name);
  return names;
}

std::int64_t default_llama_hidden(std::int64_t width) {
  return (8 * width / 3 + 63) / 64 * 64;
}

}  // namespace kintsugi
