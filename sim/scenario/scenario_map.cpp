#include "sim/scenario/scenario_map.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace kintsugi::sim {

namespace {

constexpr double kLongest = 3.2e8;  // ten years in seconds: nanoseconds of it fit an Instant

constexpr NamedValue<Distribution::Kind> kKinds[] = {{"exponential", Distribution::Kind::exponential},
                                                     {"weibull", Distribution::Kind::weibull},
                                                     {"gamma", Distribution::Kind::gamma},
                                                     {"log_normal", Distribution::Kind::log_normal},
                                                     {"fixed", Distribution::Kind::fixed}};

constexpr std::pair<std::string_view, double> kUnits[] = {
    {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86'400}};

std::string no_time(std::string_view text) {
  return fmt::format(
      "'{}' is no time; write a number of at least 0 with a unit, at most 3650d: 54d, 3h, 18m, 2.5s, 250ms",
      text.substr(0, 40));
}

}  // namespace

std::optional<double> seconds_from(std::string_view text) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || !(value >= 0)) return {};
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (unit.empty() && value == 0) return 0;
  for (const auto& [name, factor] : kUnits) {
    if (unit == name && value * factor <= kLongest) return value * factor;
  }
  return {};
}

double read_seconds(ConfigMap& map, std::string_view key, std::optional<double> fallback) {
  if (!map.has(key) && fallback) return *fallback;
  const std::string text = map.text(key);
  const std::optional<double> value = seconds_from(text);
  if (!value && !text.empty()) map.refuse(key, no_time(text));
  return value.value_or(0);
}

double read_span(ConfigMap& map, std::string_view key, std::optional<double> fallback) {
  const double value = read_seconds(map, key, fallback);
  map.check(value > 0, key, "must be above 0; write a time such as 18m");
  return value > 0 ? value : 1;
}

Distribution read_kind(ConfigMap& map, double mean) {
  Distribution d{map.one_of("distribution", kKinds, Distribution::Kind::exponential), mean, 1};
  const bool shaped = d.kind == Distribution::Kind::weibull || d.kind == Distribution::Kind::gamma;
  if (map.has("shape")) {
    map.check(shaped, "shape", "belongs to weibull and gamma; remove it, or choose one of them");
    d.shape = map.number("shape", {0.1, 100});
  } else if (shaped) {
    map.refuse("shape", "is missing; add a number, below 1 for faults that cluster");
  }
  if (d.kind == Distribution::Kind::log_normal) {
    d.shape = map.number("sigma", {0, 10, true});
  } else {
    map.check(!map.has("sigma"), "sigma", "belongs to log_normal; remove it, or choose that");
  }
  return d;
}

Distribution read_distribution(const YamlNode& node, const std::string& path, ConfigErrors& errors) {
  if (node.kind == YamlNode::Kind::scalar) {
    const std::optional<double> value = seconds_from(node.scalar);
    if (!value || *value == 0) errors.add(node.line, path, no_time(node.scalar));
    return {Distribution::Kind::fixed, value && *value > 0 ? *value : 1};
  }
  ConfigMap map(node, path, {"distribution", "mean", "shape", "sigma", "values"}, errors);
  if (!map.has("values")) return read_kind(map, read_span(map, "mean"));
  Distribution d{Distribution::Kind::empirical, 1, 1};
  map.check(!map.has("mean") && !map.has("distribution"), "values", "stand alone; remove `mean` and `distribution`");
  for (const YamlNode& item : map.child("values").items) {
    const std::optional<double> value = seconds_from(item.scalar);
    if (!value || *value == 0) errors.add(item.line, path + ".values", no_time(item.scalar));
    d.values.push_back(value.value_or(1));
  }
  map.check(!d.values.empty(), "values", "must be a list of times; write [10m, 2h]");
  if (d.values.empty()) d.values.push_back(1);
  return d;
}

}  // namespace kintsugi::sim
