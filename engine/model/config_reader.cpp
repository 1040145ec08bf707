#include "engine/model/config_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

namespace kintsugi {

namespace {

// Keys that the design names and that do nothing yet.
constexpr std::string_view kLaterKeys[] = {"checkpoint", "validation", "revisions", "reduction",      "telemetry",
                                           "generate",   "cluster",    "labels",    "tensor_parallel"};

const YamlNode kEmptyMap{.kind = YamlNode::Kind::map, .scalar = {}, .items = {}, .entries = {}};

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0u);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string unknown_key(std::string_view key, const std::vector<std::string_view>& known) {
  if (std::ranges::find(kLaterKeys, key) != std::end(kLaterKeys)) {
    return "unknown key; it comes with a later version: remove it";
  }
  if (const auto near = nearest_word(key, known)) return fmt::format("unknown key; did you mean '{}'?", *near);
  return fmt::format("unknown key; remove it, or use one of: {}", fmt::join(known, ", "));
}

// A quotation of the file that cannot flood a terminal.
std::string clipped(std::string_view text) {
  return text.size() <= 60 ? std::string(text) : std::string(text.substr(0, 60)) + "...";
}
std::string quoted(std::string_view text) {
  return "'" + clipped(text) + "'";
}

}  // namespace

std::optional<std::string_view> nearest_word(std::string_view word, const std::vector<std::string_view>& known) {
  if (word.size() > 64) return {};
  std::size_t nearest = std::max<std::size_t>(2, word.size() / 3) + 1;
  std::optional<std::string_view> found;
  for (const std::string_view candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance >= nearest || distance >= candidate.size()) continue;
    nearest = distance;
    found = candidate;
  }
  return found;
}

void ConfigErrors::add(int line, const std::string& path, const std::string& what) {
  if (!first_) first_ = yaml_error(source_, line, path.empty() ? what : path + ": " + what);
}

ConfigMap::ConfigMap(const YamlNode& node, std::string path, std::initializer_list<std::string_view> known,
                     ConfigErrors& errors)
    : node_(&node), path_(std::move(path)), errors_(&errors) {
  if (node.kind != YamlNode::Kind::map) {
    errors.add(node.line, path_, "must be a map of keys and values, not a single value or a list");
    node_ = &kEmptyMap;
    return;
  }
  for (const YamlEntry& entry : node.entries) {
    if (std::ranges::find(known, entry.key) == known.end()) {
      errors.add(entry.line, path_of(clipped(entry.key)), unknown_key(entry.key, known));
    }
  }
}

std::string ConfigMap::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

void ConfigMap::refuse(std::string_view key, const std::string& what) {
  const YamlEntry* entry = node_->find(key);
  errors_->add(entry != nullptr ? entry->line : node_->line, path_of(key), what);
}

const YamlNode& ConfigMap::child(std::string_view key) {
  if (const YamlEntry* entry = node_->find(key)) return entry->value;
  refuse(key, "is missing; add it");
  return kEmptyMap;
}

// Null, with an error unless it is optional and absent, where there is no scalar.
const YamlNode* ConfigMap::scalar(std::string_view key, bool optional, const char* kind) {
  const YamlEntry* entry = node_->find(key);
  if (entry == nullptr) {
    if (!optional) refuse(key, fmt::format("is missing; add {}", kind));
    return nullptr;
  }
  if (entry->value.kind == YamlNode::Kind::scalar) return &entry->value;
  refuse(key, fmt::format("{}; write {}",
                          entry->value.kind == YamlNode::Kind::null ? "has no value" : "is a list or a map", kind));
  return nullptr;
}

template <class T>
T ConfigMap::parsed(std::string_view key, Range<T> range, std::optional<T> fallback, const char* kind) {
  const YamlNode* node = scalar(key, fallback.has_value(), kind);
  if (node == nullptr) return fallback.value_or(range.low);
  T value{};
  const char* const end = node->scalar.data() + node->scalar.size();
  const auto [stop, status] = std::from_chars(node->scalar.data(), end, value);
  if (node->quoted) {
    refuse(key, fmt::format("{} is text; write {} without quotes", quoted(node->scalar), kind));
  } else if (status == std::errc::invalid_argument || stop != end) {
    refuse(key, fmt::format("{} is not {}; write one", quoted(node->scalar), kind));
  } else if (status != std::errc{} || !(value >= range.low && value <= range.high) ||
             (range.open_low && value == range.low)) {
    refuse(key, fmt::format("{} is out of range; write a value {} {} and at most {}", quoted(node->scalar),
                            range.open_low ? "above" : "of at least", range.low, range.high));
  } else {
    return value;
  }
  return range.low;
}

std::int64_t ConfigMap::integer(std::string_view key, Range<std::int64_t> range, std::optional<std::int64_t> fallback) {
  return parsed(key, range, fallback, "a whole number");
}

std::uint64_t ConfigMap::seed(std::string_view key, std::optional<std::uint64_t> fallback) {
  return parsed<std::uint64_t>(key, {0, std::numeric_limits<std::uint64_t>::max()}, fallback, "a whole number");
}

double ConfigMap::number(std::string_view key, Range<double> range, std::optional<double> fallback) {
  return parsed(key, range, fallback, "a number");
}

float ConfigMap::single(std::string_view key, Range<float> range, std::optional<float> fallback) {
  return parsed(key, range, fallback, "a number");
}

bool ConfigMap::boolean(std::string_view key, bool fallback) {
  static constexpr NamedValue<bool> kWords[] = {{"true", true}, {"false", false}};
  return one_of(key, kWords, fallback);
}

std::string ConfigMap::text(std::string_view key, std::optional<std::string> fallback) {
  const YamlNode* node = scalar(key, fallback.has_value(), "a text");
  if (node == nullptr) return fallback.value_or("");
  if (node->scalar.empty()) refuse(key, "is empty; write a text");
  return node->scalar;
}

std::string ConfigMap::choice(std::string_view key, bool optional) {
  const YamlNode* node = scalar(key, optional, "a word");
  if (node == nullptr) return "";
  if (node->scalar.empty()) refuse(key, "is empty; write a word");
  return clipped(node->scalar);
}

}  // namespace kintsugi
