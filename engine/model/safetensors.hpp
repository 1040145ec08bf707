// Safetensors files (github.com/huggingface/safetensors, format section): 8 bytes of header length, a JSON header that
// names each tensor's type, shape and byte range, then the tensors without gaps.
//
// Writing: the plan fixes every byte offset from the layout alone; then the holders of shards write their slices into
// one file at the same time, each from its own process.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "base/result.hpp"
#include "engine/model/layout.hpp"

namespace kintsugi {

struct TensorEntry {
  std::string name;
  std::string dtype;  // "F32", "BF16", ...
  std::vector<std::int64_t> shape;
  std::uint64_t begin_bytes = 0;  // from the start of the file
  std::uint64_t end_bytes = 0;
};

struct SafetensorsPlan {
  Precision precision = Precision::float32;  // of the tensors in the file
  std::string header;                        // the file's first bytes, length included
  std::vector<TensorEntry> tensors;          // in the order of ModelLayout::parameters()
  std::uint64_t file_bytes = 0;
};

SafetensorsPlan plan_safetensors(const ModelLayout& layout, Precision precision);

// Creates or empties `path`, writes the header and extends the file to its full size.
Result<FileDescriptor> create_safetensors(const std::string& path, const SafetensorsPlan& plan);

// Writes elements [first, first + values.size()) of a parameter, in the order of the layout. A transposed parameter
// lands as one contiguous run in each row of the file: the slice is transposed through a buffer of a few columns, and
// every run is one pwrite, so that no process needs the whole parameter. Any thread, any process; ranges must not
// overlap. `parameter` is one of the plan's layout. Nothing is synced.
Result<void> write_parameter_range(int fd, const SafetensorsPlan& plan, const Parameter& parameter, std::int64_t first,
                                   std::span<const float> values);

// A checked file. Immutable after open; reads from any thread.
class SafetensorsFile {
 public:
  // Error{tell_user}: not a regular file, a header that is too long, no JSON, with a name twice, an unknown type, a
  // range that does not fit its shape or the file, or ranges that overlap or leave gaps.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  const TensorEntry* find(std::string_view name) const;
  // Reads elements [first, first + out.size()) of `parameter`, in the order of the layout, from the tensor `entry`,
  // whose shape and type must be those of check_tensor.
  Result<void> read(const TensorEntry& entry, const Parameter& parameter, std::int64_t first,
                    std::span<float> out) const;

 private:
  std::string path_;
  FileDescriptor fd_;
  std::vector<TensorEntry> tensors_;
};

// Whether a tensor can be read as the parameter: F32 or BF16, of its shape. Error{tell_user}.
Result<void> check_tensor(const TensorEntry& entry, const Parameter& parameter, const std::string& path);

// The header's tensors, with absolute offsets. `text`: the JSON alone; `data_begin`, `file_bytes`: of the file.
Result<std::vector<TensorEntry>> parse_safetensors_header(std::string_view text, std::uint64_t data_begin,
                                                          std::uint64_t file_bytes, const std::string& path);

}  // namespace kintsugi
