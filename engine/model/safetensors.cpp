#include "engine/model/safetensors.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/assert.hpp"
#include "base/units.hpp"

namespace kintsugi {

namespace {

// The reference implementation's own limit.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
// Elements converted at a time, and columns transposed at a time: both keep the buffer in cache.
constexpr std::size_t kChunk = 16384;
constexpr std::int64_t kTileColumns = 16;

std::size_t element_bytes(Precision precision) {
  return precision == Precision::float32 ? 4 : 2;
}

// Round to nearest even; a NaN stays one.
std::uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

Result<void> write_at(int fd, const void* data, std::size_t bytes, std::uint64_t offset) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd, at, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{ErrorAction::tell_user, errno_message("cannot write", "model file")};
    at += n;
    bytes -= static_cast<std::size_t>(n);
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

Result<void> read_at(int fd, void* data, std::size_t bytes, std::uint64_t offset, const std::string& path) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, at, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{ErrorAction::tell_user, errno_message("cannot read", path)};
    if (n == 0) return Error{ErrorAction::tell_user, path + " became shorter while it was read; copy it again"};
    at += n;
    bytes -= static_cast<std::size_t>(n);
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

// A tensor's elements in the file, as floats.
struct TensorBytes {
  int fd;
  std::uint64_t begin_bytes;
  Precision precision;

  std::uint64_t at(std::int64_t element) const {
    return begin_bytes + static_cast<std::uint64_t>(element) * element_bytes(precision);
  }

  Result<void> write(std::int64_t element, std::span<const float> values) const {
    if (precision == Precision::float32) return write_at(fd, values.data(), values.size_bytes(), at(element));
    std::uint16_t buffer[kChunk];
    while (!values.empty()) {
      const std::span<const float> chunk = values.first(std::min(kChunk, values.size()));
      std::ranges::transform(chunk, buffer, to_bfloat16);
      KINTSUGI_TRY(write_at(fd, buffer, chunk.size() * 2, at(element)));
      element += static_cast<std::int64_t>(chunk.size());
      values = values.subspan(chunk.size());
    }
    return {};
  }

  Result<void> read(std::int64_t element, std::span<float> out, const std::string& path) const {
    if (precision == Precision::float32) return read_at(fd, out.data(), out.size_bytes(), at(element), path);
    std::uint16_t buffer[kChunk];
    while (!out.empty()) {
      const std::size_t count = std::min(kChunk, out.size());
      KINTSUGI_TRY(read_at(fd, buffer, count * 2, at(element), path));
      std::transform(buffer, buffer + count, out.begin(), from_bfloat16);
      element += static_cast<std::int64_t>(count);
      out = out.subspan(count);
    }
    return {};
  }
};

// A slice [first, end) of a (rows, columns) matrix, seen in the (columns, rows) file: of each of the file's rows, that
// is each of our columns, it covers one contiguous run.
struct TransposedSlice {
  std::int64_t rows, columns, first, end;

  std::int64_t run_begin(std::int64_t column) const {
    return ceil_div(std::max<std::int64_t>(first - column, 0), columns);
  }
  std::int64_t run_end(std::int64_t column) const { return ceil_div(std::max<std::int64_t>(end - column, 0), columns); }

  // Calls run(element of the file, floats of the tile) for every run, and move(float of the tile, index in the slice)
  // for every element, before the runs of its tile where `gather`, after them otherwise.
  template <class Run, class Move>
  Result<void> visit(bool gather, const Run& run, const Move& move) const {
    std::vector<float> tile;
    for (std::int64_t column = 0; column < columns; column += kTileColumns) {
      const std::int64_t column_end = std::min(column + kTileColumns, columns);
      const std::int64_t low = run_begin(column_end - 1);
      const std::int64_t height = run_end(column) - low;
      if (height <= 0) continue;
      tile.resize(static_cast<std::size_t>(height * kTileColumns));
      const auto place = [&](std::int64_t c, std::int64_t r) {
        return tile.data() + (c - column) * height + (r - low);
      };
      const auto move_all = [&] {
        for (std::int64_t r = low; r < low + height; ++r) {
          for (std::int64_t c = column; c < column_end; ++c) {
            const std::int64_t index = r * columns + c - first;
            if (index >= 0 && index < end - first) move(*place(c, r), static_cast<std::size_t>(index));
          }
        }
      };
      if (gather) move_all();
      for (std::int64_t c = column; c < column_end; ++c) {
        const std::int64_t begin = run_begin(c);
        const std::int64_t count = run_end(c) - begin;
        if (count > 0) KINTSUGI_TRY(run(c * rows + begin, std::span(place(c, begin), static_cast<std::size_t>(count))));
      }
      if (!gather) move_all();
    }
    return {};
  }
};

}  // namespace

Result<FileDescriptor> create_safetensors(const std::string& path, const SafetensorsPlan& plan) {
  FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return Error{ErrorAction::tell_user, errno_message("cannot create", path)};
  if (::ftruncate(fd.get(), static_cast<off_t>(plan.file_bytes)) != 0) {
    return Error{ErrorAction::tell_user, errno_message("cannot extend", path)};
  }
  KINTSUGI_TRY(write_at(fd.get(), plan.header.data(), plan.header.size(), 0));
  return fd;
}

Result<void> write_parameter_range(int fd, const SafetensorsPlan& plan, const Parameter& parameter, std::int64_t first,
                                   std::span<const float> values) {
  const std::int64_t end = first + static_cast<std::int64_t>(values.size());
  KINTSUGI_ASSERT(first >= 0 && end <= parameter.count());
  const auto entry = std::ranges::find(plan.tensors, parameter.name, &TensorEntry::name);
  KINTSUGI_ASSERT_MSG(entry != plan.tensors.end(), "the parameter is not of the plan's layout");
  const TensorBytes file{fd, entry->begin_bytes, plan.precision};
  if (!parameter.stored_transposed) return file.write(first, values);
  return TransposedSlice{parameter.rows, parameter.columns, first, end}.visit(
      true, [&](std::int64_t element, std::span<const float> run) { return file.write(element, run); },
      [&](float& tile, std::size_t index) { tile = values[index]; });
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  const auto refuse = [&](const char* what) {
    return Error{ErrorAction::tell_user, path + ": " + what + "; download or export it again"};
  };
  SafetensorsFile file;
  file.path_ = path;
  file.fd_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.fd_.valid()) return Error{ErrorAction::tell_user, errno_message("cannot open", path)};
  struct stat info {};
  if (::fstat(file.fd_.get(), &info) != 0 || !S_ISREG(info.st_mode)) return refuse("is not a regular file");
  const auto file_bytes = static_cast<std::uint64_t>(info.st_size);
  std::uint64_t header_bytes = 0;
  if (file_bytes < 8) return refuse("is shorter than a safetensors header");
  KINTSUGI_TRY(read_at(file.fd_.get(), &header_bytes, 8, 0, path));
  if (header_bytes > kMaxHeaderBytes || header_bytes > file_bytes - 8) return refuse("has an impossible header length");
  std::string header(header_bytes, '\0');
  KINTSUGI_TRY(read_at(file.fd_.get(), header.data(), header.size(), 8, path));
  KINTSUGI_TRY_ASSIGN(file.tensors_, parse_safetensors_header(header, 8 + header_bytes, file_bytes, path));
  return file;
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &TensorEntry::name);
  return found == tensors_.end() ? nullptr : &*found;
}

Result<void> SafetensorsFile::read(const TensorEntry& entry, const Parameter& parameter, std::int64_t first,
                                   std::span<float> out) const {
  const std::int64_t end = first + static_cast<std::int64_t>(out.size());
  KINTSUGI_ASSERT(first >= 0 && end <= parameter.count() && check_tensor(entry, parameter, path_).ok());
  const TensorBytes file{fd_.get(), entry.begin_bytes, entry.dtype == "F32" ? Precision::float32 : Precision::bfloat16};
  if (!parameter.stored_transposed) return file.read(first, out, path_);
  return TransposedSlice{parameter.rows, parameter.columns, first, end}.visit(
      false, [&](std::int64_t element, std::span<float> run) { return file.read(element, run, path_); },
      [&](const float& tile, std::size_t index) { out[index] = tile; });
}

}  // namespace kintsugi
