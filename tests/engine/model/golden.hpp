// golden/golden.json and the closed formulas of golden/make_golden.py that go with it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/layout.hpp"
#include "tests/engine/model/whole_model.hpp"

namespace kintsugi::test {

// One model of the file.
struct Golden {
  std::string name;
  ModelConfig config;
  MicrobatchShape shape;
  nlohmann::json record;     // of the model
  nlohmann::json optimizer;  // of the file
};

std::vector<Golden> load_goldens();
// Hugging Face's row-major element that our element `i` of the parameter is.
std::int64_t hugging_face_element(const Parameter& parameter, std::int64_t i);
// The initial weight of element `i` as it lies in the layout.
float golden_weight(const Parameter& parameter, std::int64_t i);
Microbatch golden_microbatch(const Golden& golden);

}  // namespace kintsugi::test
