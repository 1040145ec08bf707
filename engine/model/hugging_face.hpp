// Hugging Face model directories: config.json beside model.safetensors (or several files and their index). GPT-2's and
// Llama's own keys, as transformers writes them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/model/safetensors.hpp"

namespace kintsugi {

// config.json of a model, in the file's own words. The seed has no place there.
std::string hugging_face_config(const ModelConfig& model, Precision precision);

// Error{tell_user}: no JSON, another family, a variant whose mathematics differs (activation, biases, scaled rotary
// positions, heads of another width, ...), or a shape that no job could have. `source` names the file.
Result<ModelConfig> parse_hugging_face_config(const std::string& json, const std::string& source);

// A directory whose tensors were all found and have the right shapes. Immutable; reads from any thread.
class HuggingFaceModel {
 public:
  const ModelConfig& config() const { return config_; }
  const ModelLayout& layout() const { return layout_; }
  // Reads elements [first, first + out.size()) of `layout().parameters()[index]`, in the layout's order. A shard's
  // holder reads only what it holds.
  Result<void> read(std::size_t index, std::int64_t first, std::span<float> out) const;

 private:
  friend Result<HuggingFaceModel> load_hugging_face(const std::string& directory);
  explicit HuggingFaceModel(const ModelConfig& config) : config_(config), layout_(config) {}

  ModelConfig config_;
  ModelLayout layout_;
  std::vector<SafetensorsFile> files_;
  std::vector<std::pair<std::size_t, std::size_t>> places_;  // per parameter: file, tensor in it
};

Result<HuggingFaceModel> load_hugging_face(const std::string& directory);

}  // namespace kintsugi
