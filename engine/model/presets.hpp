// Shapes of published models, by name: `model: gpt2-124m` in a job file.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "engine/model/job_config.hpp"

namespace kintsugi {

// The shape alone; the seed is 0.
std::optional<ModelConfig> find_preset(std::string_view name);
// In the order of the table.
std::vector<std::string_view> preset_names();

// Rounded up to a multiple of 64: Llama's feed-forward width where none is given (Touvron et al. 2023, section 2.2,
// take 2/3 of 4 * width).
std::int64_t default_llama_hidden(std::int64_t width);

}  // namespace kintsugi
