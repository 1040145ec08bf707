#include "engine/model/hugging_face.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/assert.hpp"

namespace kintsugi {

namespace {

constexpr std::size_t kMaxJsonBytes = std::size_t{64} << 20;

// model.safetensors, or the files that model.safetensors.index.json names, sorted.
Result<std::vector<std::string>> weight_files(const std::string& directory) {
  std::error_code ignored;
  if (std::filesystem::exists(directory + "/model.safetensors", ignored))
    return std::vector{directory + "/model.safetensors"};
  const std::string index = directory + "/model.safetensors.index.json";
  KINTSUGI_TRY_ASSIGN(const std::string text, read_text_file(index, kMaxJsonBytes));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto refuse = [&](const char* what) { return Error{ErrorAction::tell_user, index + ": " + what}; };
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return refuse("has no weight_map; copy the directory again");
  }
  std::set<std::string> names;
  for (const auto& file : json["weight_map"]) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.starts_with('.') || name.find('/') != std::string::npos) {
      return refuse("names a file outside its directory; copy the directory again");
    }
    names.insert(directory + "/" + name);
  }
  return std::vector(names.begin(), names.end());
}

// The published GPT-2 files leave out the prefix.
constexpr std::string_view kGpt2Prefix = "transformer.";

bool names_parameter(std::string_view tensor, std::string_view parameter) {
  return tensor == parameter || (parameter.starts_with(kGpt2Prefix) && tensor == parameter.substr(kGpt2Prefix.size()));
}

}  // namespace

Result<void> HuggingFaceModel::read(std::size_t index, std::int64_t first, std::span<float> out) const {
  KINTSUGI_ASSERT(index < places_.size());
  const SafetensorsFile& file = files_[places_[index].first];
  return file.read(file.tensors()[places_[index].second], layout_.parameters()[index], first, out);
}

Result<HuggingFaceModel> load_hugging_face(const std::string& directory) {
  const std::string config_path = directory + "/config.json";
  KINTSUGI_TRY_ASSIGN(const std::string text, read_text_file(config_path, kMaxJsonBytes));
  KINTSUGI_TRY_ASSIGN(const ModelConfig config, parse_hugging_face_config(text, config_path));
  HuggingFaceModel model(config);
  KINTSUGI_TRY_ASSIGN(const std::vector<std::string> paths, weight_files(directory));
  for (const std::string& path : paths) {
    KINTSUGI_TRY_ASSIGN(SafetensorsFile file, SafetensorsFile::open(path));
    model.files_.push_back(std::move(file));
  }
  for (const Parameter& parameter : model.layout_.parameters()) {
    const std::size_t known = model.places_.size();
    for (std::size_t f = 0; f < model.files_.size() && model.places_.size() == known; ++f) {
      const std::vector<TensorEntry>& tensors = model.files_[f].tensors();
      const auto found = std::ranges::find_if(
          tensors, [&](const TensorEntry& tensor) { return names_parameter(tensor.name, parameter.name); });
      if (found == tensors.end()) continue;
      KINTSUGI_TRY(check_tensor(*found, parameter, model.files_[f].path()));
      model.places_.emplace_back(f, static_cast<std::size_t>(found - tensors.begin()));
    }
    if (model.places_.size() == known) {
      return Error{ErrorAction::tell_user, directory + ": holds no tensor '" + parameter.name +
                                               "', which config.json asks for; copy the directory again"};
    }
  }
  return model;
}

}  // namespace kintsugi
