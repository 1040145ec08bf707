// What scenario files have beside other configuration: times with units, and random times.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/distributions.hpp"
#include "engine/model/config_reader.hpp"

namespace kintsugi::sim {

// "54d", "3h", "18m", "2.5s", "250ms"; also "0". Empty for anything else.
std::optional<double> seconds_from(std::string_view text);

// Seconds, at least 0; without a fallback the key is required.
double read_seconds(ConfigMap& map, std::string_view key, std::optional<double> fallback = {});
// The same, above 0.
double read_span(ConfigMap& map, std::string_view key, std::optional<double> fallback = {});

// { distribution: exponential | weibull | gamma | log_normal | fixed, mean: 4h, shape: 0.7 | sigma: 0.5 }, or
// { values: [10m, 2h] }, or a time alone: fixed.
Distribution read_distribution(const YamlNode& node, const std::string& path, ConfigErrors& errors);
// The keys `distribution` and `shape` or `sigma` of a map that gives its mean in another way.
Distribution read_kind(ConfigMap& map, double mean);

}  // namespace kintsugi::sim
