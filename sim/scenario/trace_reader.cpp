// Traces of what went wrong somewhere: who was out, from when to when.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/model/yaml_tree.hpp"
#include "sim/scenario/scenario.hpp"

namespace kintsugi::sim {

namespace {

constexpr double kLongest = 3.2e8;  // seconds

// Takes events one after the other and refuses what cannot be a trace.
class TraceBuilder {
 public:
  // What is wrong with it; empty: nothing.
  std::string add(const TraceEvent& e) {
    if (!(e.start >= 0 && e.end <= kLongest)) return "start: is below 0 or beyond ten years; write seconds";
    if (e.end < e.start) return fmt::format("end: {} comes before start {}; swap or correct them", e.end, e.start);
    if (!events_.empty() && e.start < events_.back().start) {
      return fmt::format("start: {} comes after {} in the line before; sort the trace by start", e.start,
                         events_.back().start);
    }
    const auto busy = until_.find(e.node);
    if (busy != until_.end() && e.start < busy->second) {
      return fmt::format("start: node {} is still out until {}; merge events that overlap", e.node, busy->second);
    }
    until_[e.node] = e.end;
    events_.push_back(e);
    return "";
  }
  std::vector<TraceEvent> take() { return std::move(events_); }

 private:
  std::vector<TraceEvent> events_;
  std::map<std::uint32_t, double> until_;
};

template <class T>
bool parse(std::string_view text, T& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc{} && end == text.data() + text.size();
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const std::size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

constexpr std::string_view kHeader = "start,end,node,class";

std::string bad_class(std::string_view name) {
  return fmt::format("class: '{}' is not known; write one of those of faults in a scenario", name.substr(0, 40));
}

}  // namespace

Result<std::vector<TraceEvent>> parse_trace_csv(const std::string& text, const std::string& source) {
  if (text.empty()) {
    return Error{ErrorAction::tell_user, fmt::format("{}:1: is empty; its first line is `{}`", source, kHeader)};
  }
  TraceBuilder trace;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (number == 1) {
      if (line == kHeader) continue;
      return yaml_error(source, 1, fmt::format("a trace begins with the line '{}'; add it", kHeader));
    }
    if (line.empty() || line.starts_with('#')) continue;
    const std::vector<std::string_view> fields = fields_of(line);
    if (fields.size() != 4)
      return yaml_error(source, number, fmt::format("has {} fields; write {}", fields.size(), kHeader));
    TraceEvent e;
    if (!parse(fields[0], e.start)) return yaml_error(source, number, "start: is no number; write seconds");
    if (!parse(fields[1], e.end)) return yaml_error(source, number, "end: is no number; write seconds");
    if (!parse(fields[2], e.node)) return yaml_error(source, number, "node: is no number; count nodes from 0");
    const std::optional<FaultClass> kind = fault_class_from(fields[3]);
    if (!kind) return yaml_error(source, number, bad_class(fields[3]));
    e.kind = *kind;
    if (const std::string wrong = trace.add(e); !wrong.empty()) return yaml_error(source, number, wrong);
  }
  return trace.take();
}

Result<std::vector<TraceEvent>> parse_trace_json(const std::string& text, const std::string& source) {
  const nlohmann::json root = nlohmann::json::parse(text, nullptr, false);
  if (!root.is_array()) return yaml_error(source, 1, "is no JSON list of events; write [{\"start\": 0, ...}]");
  TraceBuilder trace;
  std::size_t number = 0;
  const auto refuse = [&](const std::string& what) {
    return Error{ErrorAction::tell_user, fmt::format("{}: element {}: {}", source, number, what)};
  };
  for (const nlohmann::json& item : root) {
    if (!item.is_object())
      return refuse("is no object; write {\"start\": 0, \"end\": 1, \"node\": 0, \"class\": \"node\"}");
    for (const auto& [key, value] : item.items()) {
      if (key != "start" && key != "end" && key != "node" && key != "class") {
        return refuse(key.substr(0, 40) + ": unknown key; remove it, or use one of: start, end, node, class");
      }
    }
    const auto number_of = [&](const char* key, double& out) {
      const bool fine = item.contains(key) && item[key].is_number();
      if (fine) out = item[key].get<double>();
      return fine;
    };
    TraceEvent e;
    double node = 0;
    if (!number_of("start", e.start)) return refuse("start: is no number; write seconds");
    if (!number_of("end", e.end)) return refuse("end: is no number; write seconds");
    if (!number_of("node", node) || node < 0 || node > 1e9 || node != std::floor(node)) {
      return refuse("node: is no whole number; count nodes from 0");
    }
    e.node = static_cast<std::uint32_t>(node);
    const std::string name =
        item.contains("class") && item["class"].is_string() ? item["class"].get<std::string>() : "";
    const std::optional<FaultClass> kind = fault_class_from(name);
    if (!kind) return refuse(bad_class(name));
    e.kind = *kind;
    if (const std::string wrong = trace.add(e); !wrong.empty()) return refuse(wrong);
    ++number;
  }
  return trace.take();
}

}  // namespace kintsugi::sim
