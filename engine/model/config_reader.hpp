// Reads one map of a configuration file key by key. The first thing wrong is kept and everything after it is ignored,
// so that a section reads as a list of its keys. Messages: "FILE:LINE: key.path: what is wrong, and what to do".
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/model/yaml_tree.hpp"

namespace kintsugi {

// The first error of a file.
class ConfigErrors {
 public:
  explicit ConfigErrors(std::string source) : source_(std::move(source)) {}
  void add(int line, const std::string& path, const std::string& what);
  bool any() const { return first_.has_value(); }
  const Error& first() const { return *first_; }

 private:
  std::string source_;
  std::optional<Error> first_;
};

template <class T>
struct Range {
  T low;
  T high;
  bool open_low = false;  // low itself is refused
};

template <class T>
struct NamedValue {
  std::string_view name;
  T value;
};

class ConfigMap {
 public:
  // `path`: "" for the file itself, else "model", ... Refuses a node that is no map, and keys not in `known`.
  ConfigMap(const YamlNode& node, std::string path, std::initializer_list<std::string_view> known,
            ConfigErrors& errors);

  // False for a key that is missing.
  bool has(std::string_view key) const { return node_->find(key) != nullptr; }
  // The value of a required key; an empty map, with an error, when it is missing.
  const YamlNode& child(std::string_view key);

  // Each getter: the key's value; without one `fallback`; without a fallback it is required.
  std::int64_t integer(std::string_view key, Range<std::int64_t> range, std::optional<std::int64_t> fallback = {});
  std::uint64_t seed(std::string_view key, std::optional<std::uint64_t> fallback);
  double number(std::string_view key, Range<double> range, std::optional<double> fallback = {});
  float single(std::string_view key, Range<float> range, std::optional<float> fallback = {});
  bool boolean(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::optional<std::string> fallback = {});

  template <class T, std::size_t N>
  T one_of(std::string_view key, const NamedValue<T> (&values)[N],
           std::type_identity_t<std::optional<T>> fallback = {}) {
    const std::string word = choice(key, fallback.has_value());
    std::string names;
    for (const NamedValue<T>& value : values) {
      if (value.name == word) return value.value;
      names += (names.empty() ? "" : ", ") + std::string(value.name);
    }
    if (!word.empty()) refuse(key, "'" + word + "' is not known; write one of: " + names);
    return fallback.value_or(values[0].value);
  }

  // `what`: what is wrong with the key, and what to do. At the line of the map where the key is not in the file.
  void refuse(std::string_view key, const std::string& what);
  void check(bool holds, std::string_view key, const std::string& what) {
    if (!holds) refuse(key, what);
  }
  bool failed() const { return errors_->any(); }

 private:
  template <class T>
  T parsed(std::string_view key, Range<T> range, std::optional<T> fallback, const char* kind);
  const YamlNode* scalar(std::string_view key, bool optional, const char* kind);
  std::string choice(std::string_view key, bool optional);
  std::string path_of(std::string_view key) const;

  const YamlNode* node_;
  std::string path_;
  ConfigErrors* errors_;
};

// The known word nearest to `word` by edit distance, if it is near enough to be a slip.
std::optional<std::string_view> nearest_word(std::string_view word, const std::vector<std::string_view>& known);

}  // namespace kintsugi
