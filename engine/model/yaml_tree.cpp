#include "engine/model/yaml_tree.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>

namespace kintsugi {

namespace {

struct Refused {
  int line;
  std::string what;
};

int line_of(const YAML::Mark& mark) {
  return mark.line + 1;
}

// Builds the tree; throws Refused, which parse_yaml turns into an Error.
class TreeBuilder final : public YAML::EventHandler {
 public:
  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { leaf(mark, anchor, {}); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse_anchor(line_of(mark)); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_tag(mark, tag);
    YamlNode node{.kind = YamlNode::Kind::scalar, .scalar = value, .items = {}, .entries = {}};
    node.quoted = tag == "!";
    leaf(mark, anchor, std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(mark, tag, anchor, YamlNode::Kind::sequence);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(mark, tag, anchor, YamlNode::Kind::map);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Open {
    YamlNode* node;
    bool key_read = false;  // of a map: the next node is the value of the last entry
  };

  [[noreturn]] static void refuse_anchor(int line) {
    throw Refused{line, "anchors and aliases are not allowed; write the values out"};
  }
  // yaml-cpp marks plain scalars "?" and quoted ones "!".
  static void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw Refused{line_of(mark), "tags are not allowed; remove '" + tag + "'"};
    }
  }

  void leaf(const YAML::Mark& mark, YAML::anchor_t anchor, YamlNode node) {
    node.line = line_of(mark);
    place(std::move(node), anchor);
  }

  void begin(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    refuse_tag(mark, tag);
    if (open_.size() >= kMaxYamlDepth) {
      throw Refused{line_of(mark), "nested deeper than " + std::to_string(kMaxYamlDepth) + " levels; flatten it"};
    }
    YamlNode node{.kind = kind, .line = line_of(mark), .scalar = {}, .items = {}, .entries = {}};
    open_.push_back({place(std::move(node), anchor)});
  }

  // Where the node came to lie; null for the key of a map. Only the innermost open node grows, so the addresses of the
  // open ones hold.
  YamlNode* place(YamlNode node, YAML::anchor_t anchor) {
    if (anchor != 0) refuse_anchor(node.line);
    if (++nodes_ > kMaxYamlNodes) {
      throw Refused{node.line, "more than " + std::to_string(kMaxYamlNodes) + " values; this is no configuration"};
    }
    if (open_.empty()) return &(root_ = std::move(node));
    Open& parent = open_.back();
    if (parent.node->kind == YamlNode::Kind::sequence) return &parent.node->items.emplace_back(std::move(node));
    parent.key_read = !parent.key_read;
    if (!parent.key_read) {
      YamlEntry& entry = parent.node->entries.back();
      if (node.kind == YamlNode::Kind::map) node.line = entry.line;  // where people look for what a map lacks
      return &(entry.value = std::move(node));
    }
    add_key(*parent.node, std::move(node));
    return nullptr;
  }

  static void add_key(YamlNode& map, YamlNode key) {
    if (key.kind != YamlNode::Kind::scalar) throw Refused{key.line, "a key must be a word; name it"};
    if (const YamlEntry* first = map.find(key.scalar)) {
      throw Refused{key.line, key.scalar + ": appears twice, first in line " + std::to_string(first->line) +
                                  "; remove one of them"};
    }
    map.entries.push_back({.key = std::move(key.scalar), .line = key.line, .value = {}});
  }

  YamlNode root_;
  std::vector<Open> open_;
  std::size_t nodes_ = 0;
};

// yaml-cpp takes 0x04 for the end of input and guesses UTF-16 from zeros: text with such bytes never reaches it.
Result<void> refuse_control_characters(const std::string& text, const std::string& source) {
  int line = 1;
  for (const char c : text) {
    if (c == '\n') ++line;
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\r' && c != '\t') || byte == 0x7F || byte >= 0xFE) {
      return yaml_error(source, line, "holds a byte that is no text; save the file as UTF-8");
    }
  }
  return {};
}

}  // namespace

const YamlEntry* YamlNode::find(std::string_view key) const {
  const auto found = std::ranges::find(entries, key, &YamlEntry::key);
  return found == entries.end() ? nullptr : &*found;
}

Error yaml_error(const std::string& source, int line, const std::string& what) {
  std::string message = source + ":" + std::to_string(line) + ": " + what;
  // Quotations of the file must not break the line, nor reach the terminal as escape sequences.
  std::ranges::replace_if(
      message, [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  return {ErrorAction::tell_user, std::move(message)};
}

Result<YamlNode> parse_yaml(const std::string& text, const std::string& source) {
  if (text.size() > kMaxYamlBytes) {
    return yaml_error(source, 1, "larger than " + std::to_string(kMaxYamlBytes) + " bytes; this is no configuration");
  }
  KINTSUGI_TRY(refuse_control_characters(text, source));
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    TreeBuilder builder;
    parser.HandleNextDocument(builder);
    YamlNode root = builder.take();
    TreeBuilder second;
    if (parser.HandleNextDocument(second)) {
      return yaml_error(source, second.take().line, "a second document starts here; keep one to a file");
    }
    return root;
  } catch (const Refused& refused) {
    return yaml_error(source, refused.line, refused.what);
  } catch (const YAML::Exception& failure) {
    return yaml_error(source, failure.mark.is_null() ? 1 : line_of(failure.mark), "not YAML: " + failure.msg);
  }
}

std::string yaml_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace kintsugi
