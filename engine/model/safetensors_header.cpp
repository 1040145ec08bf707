// The JSON header of safetensors files: written for a layout, and read with suspicion.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/units.hpp"
#include "engine/model/safetensors.hpp"

namespace kintsugi {

namespace {

using Json = nlohmann::json;

// Bytes an element; 0 for a type that is not known.
std::uint64_t dtype_bytes(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  return dtype == "BOOL" || dtype == "U8" || dtype == "I8" || dtype == "F8_E4M3" || dtype == "F8_E5M2" ? 1 : 0;
}

// As the file keeps it.
std::vector<std::int64_t> stored_shape(const Parameter& p) {
  if (!p.is_matrix) return {p.rows};
  return p.stored_transposed ? std::vector{p.columns, p.rows} : std::vector{p.rows, p.columns};
}

// Every key of the outermost object once; nlohmann would keep the last.
Json parse_without_duplicates(std::string_view text) {
  std::set<std::string> keys;
  bool duplicate = false;
  const Json::parser_callback_t see = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1) duplicate |= !keys.insert(parsed.get<std::string>()).second;
    return true;
  };
  Json json = Json::parse(text, see, false);
  return duplicate ? Json(Json::value_t::discarded) : json;
}

// No value where the entry makes no sense.
std::optional<TensorEntry> parse_entry(const std::string& name, const Json& json, std::uint64_t data_bytes) {
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets") || !json["dtype"].is_string()) {
    return {};
  }
  TensorEntry entry{.name = name, .dtype = json["dtype"].get<std::string>(), .shape = {}};
  std::uint64_t bytes = dtype_bytes(entry.dtype);
  if (bytes == 0 || !json["shape"].is_array()) return {};
  for (const Json& extent : json["shape"]) {
    if (!extent.is_number_unsigned()) return {};
    const auto n = extent.get<std::uint64_t>();
    if (n != 0 && bytes > data_bytes / n) return {};
    bytes *= n;
    entry.shape.push_back(static_cast<std::int64_t>(n));
  }
  const Json& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return {};
  }
  entry.begin_bytes = offsets[0].get<std::uint64_t>();
  entry.end_bytes = offsets[1].get<std::uint64_t>();
  const bool inside = entry.begin_bytes <= entry.end_bytes && entry.end_bytes <= data_bytes;
  return inside && entry.end_bytes - entry.begin_bytes == bytes ? std::optional(entry) : std::nullopt;
}

}  // namespace

SafetensorsPlan plan_safetensors(const ModelLayout& layout, Precision precision) {
  SafetensorsPlan plan{.precision = precision, .header = {}, .tensors = {}};
  const char* const dtype = precision == Precision::float32 ? "F32" : "BF16";
  std::string json = R"({"__metadata__":{"format":"pt"})";
  std::uint64_t offset = 0;
  for (const Parameter& p : layout.parameters()) {
    const std::uint64_t end = offset + static_cast<std::uint64_t>(p.count()) * dtype_bytes(dtype);
    plan.tensors.push_back({p.name, dtype, stored_shape(p), offset, end});
    json += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", p.name, dtype,
                        fmt::join(plan.tensors.back().shape, ","), offset, end);
    offset = end;
  }
  json += '}';
  json.resize(align_up(json.size(), 8), ' ');  // tensors then start aligned, as the format advises
  for (int byte = 0; byte < 8; ++byte) plan.header += static_cast<char>(json.size() >> (8 * byte));
  plan.header += json;
  for (TensorEntry& tensor : plan.tensors) {
    tensor.begin_bytes += plan.header.size();
    tensor.end_bytes += plan.header.size();
  }
  plan.file_bytes = plan.header.size() + offset;
  return plan;
}

Result<std::vector<TensorEntry>> parse_safetensors_header(std::string_view text, std::uint64_t data_begin,
                                                          std::uint64_t file_bytes, const std::string& path) {
  const auto refuse = [&](const std::string& what) {
    return Error{ErrorAction::tell_user, path + ": " + what + "; download or export it again"};
  };
  const Json json = parse_without_duplicates(text);
  if (!json.is_object()) return refuse("the header is no JSON object, or names a tensor twice");
  std::vector<TensorEntry> tensors;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") continue;
    auto entry = parse_entry(name, value, file_bytes - data_begin);
    if (!entry) return refuse("tensor '" + name.substr(0, 100) + "' has an impossible type, shape or range");
    tensors.push_back(*std::move(entry));
  }
  std::ranges::stable_sort(tensors, {}, [](const TensorEntry& t) { return std::pair(t.begin_bytes, t.end_bytes); });
  std::uint64_t expected = 0;
  for (TensorEntry& tensor : tensors) {
    if (tensor.begin_bytes != expected) return refuse("tensor '" + tensor.name + "' overlaps another or leaves a gap");
    expected = tensor.end_bytes;
    tensor.begin_bytes += data_begin;
    tensor.end_bytes += data_begin;
  }
  if (data_begin + expected != file_bytes) return refuse("holds bytes that belong to no tensor, or lacks some");
  return tensors;
}

Result<void> check_tensor(const TensorEntry& entry, const Parameter& parameter, const std::string& path) {
  const auto refuse = [&](const std::string& what) {
    return Error{ErrorAction::tell_user, fmt::format("{}: {}: {}", path, entry.name, what)};
  };
  if (entry.dtype != "F32" && entry.dtype != "BF16") {
    return refuse("is " + entry.dtype + "; convert it to F32 or BF16");
  }
  if (entry.shape != stored_shape(parameter)) {
    return refuse(fmt::format("has the shape ({}), and config.json asks for ({}); use the files of one model",
                              fmt::join(entry.shape, ", "), fmt::join(stored_shape(parameter), ", ")));
  }
  return {};
}

}  // namespace kintsugi
