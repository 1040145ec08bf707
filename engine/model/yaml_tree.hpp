// A YAML document as a plain tree that knows its lines: the subset that configuration needs. Built from yaml-cpp's
// event stream, so that aliases, anchors, tags, deep nesting and duplicate keys are refused as they are met.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace kintsugi {

struct YamlEntry;

struct YamlNode {
  enum class Kind : unsigned char { null, scalar, sequence, map };
  Kind kind = Kind::null;
  bool quoted = false;  // of a scalar: it is text whatever it looks like
  int line = 1;         // 1-based
  std::string scalar;
  std::vector<YamlNode> items;     // of a sequence
  std::vector<YamlEntry> entries;  // of a map, in the order of the file, keys distinct

  const YamlEntry* find(std::string_view key) const;
};

struct YamlEntry {
  std::string key;
  int line = 1;
  YamlNode value;
};

constexpr int kMaxYamlDepth = 16;
constexpr std::size_t kMaxYamlNodes = 10'000;
constexpr std::size_t kMaxYamlBytes = std::size_t{1} << 20;

// One document. Error{tell_user} with "source:line: ...".
Result<YamlNode> parse_yaml(const std::string& text, const std::string& source);

// "source:line: what"
Error yaml_error(const std::string& source, int line, const std::string& what);

// Text as a double-quoted YAML scalar. For text without control characters.
std::string yaml_quoted(std::string_view text);

}  // namespace kintsugi
