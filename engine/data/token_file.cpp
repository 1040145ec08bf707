#include "engine/data/token_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/file.hpp"

namespace kintsugi {

namespace {

constexpr std::int32_t kLlmcMagic = 20240520;
constexpr std::int32_t kLlmcVersion = 1;

Error refused(const std::string& source, const std::string& what) {
  return {ErrorAction::tell_user, source + ": " + what};
}

template <class Stored>
std::int64_t widen(const std::byte* from, std::span<std::int32_t> out) {
  Stored largest = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored token;
    std::memcpy(&token, from + i * sizeof token, sizeof token);
    largest = std::max(largest, token);
    out[i] = static_cast<std::int32_t>(token);
  }
  return std::int64_t{largest};
}

template <class Stored>
std::uint64_t count_below(const std::byte* from, std::uint64_t count, std::int64_t vocabulary) {
  for (std::uint64_t i = 0; i < count; ++i) {
    Stored token;
    std::memcpy(&token, from + i * sizeof token, sizeof token);
    if (std::int64_t{token} >= vocabulary) return i;
  }
  return count;
}

Result<TokenSpan> find_llmc_tokens(std::span<const std::byte> head, std::uint64_t file_bytes,
                                   const std::string& source) {
  if (file_bytes < kLlmcHeaderBytes) {
    return refused(
        source, "has " + std::to_string(file_bytes) + " bytes; llm.c's header alone has 1024. Is it the right file?");
  }
  std::array<std::int32_t, 3> header{};
  std::memcpy(header.data(), head.data(), sizeof header);
  const auto [magic, version, count] = header;
  if (magic != kLlmcMagic) {
    return refused(source, "starts with " + std::to_string(magic) +
                               ", not with llm.c's magic 20240520. For a file without"
                               " a header write `tokens: uint16` or `tokens: uint32`.");
  }
  if (version != kLlmcVersion) {
    return refused(source, "is llm.c version " + std::to_string(version) + "; only version 1 (uint16 tokens) is read.");
  }
  const std::uint64_t expected =
      count < 0 ? 0 : kLlmcHeaderBytes + std::uint64_t{2} * static_cast<std::uint64_t>(count);
  if (expected != file_bytes) {
    return refused(source, "announces " + std::to_string(count) + " tokens, but has " + std::to_string(file_bytes) +
                               " bytes in all. It was cut or not finished: copy or prepare it again.");
  }
  return TokenSpan{kLlmcHeaderBytes, 2, static_cast<std::uint64_t>(count)};
}

}  // namespace

const char* to_string(TokenFormat format) {
  switch (format) {
    case TokenFormat::uint16: return "uint16";
    case TokenFormat::uint32: return "uint32";
    case TokenFormat::llmc: return "llmc";
  }
  KINTSUGI_UNREACHABLE();
}

Result<TokenSpan> find_tokens(std::span<const std::byte> head, std::uint64_t file_bytes, TokenFormat format,
                              const std::string& source) {
  KINTSUGI_ASSERT(head.size() >= std::min<std::uint64_t>(file_bytes, kLlmcHeaderBytes));
  if (file_bytes == 0) return refused(source, "is empty. Make it with `kintsugi data prepare`.");
  TokenSpan span;
  if (format == TokenFormat::llmc) {
    KINTSUGI_TRY_ASSIGN(span, find_llmc_tokens(head, file_bytes, source));
  } else {
    span.token_bytes = format == TokenFormat::uint16 ? 2 : 4;
    span.count = file_bytes / span.token_bytes;
    if (file_bytes % span.token_bytes != 0) {
      return refused(source, "has " + std::to_string(file_bytes) + " bytes, no whole number of " + to_string(format) +
                                 " tokens. It was cut, or its format is another one.");
    }
  }
  if (span.count == 0) return refused(source, "holds no tokens.");
  return span;
}

Result<std::shared_ptr<const TokenFile>> TokenFile::open(const std::string& path, TokenFormat format) {
  // Non-blocking, so that a FIFO in the place of the file cannot hang us.
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return Error{ErrorAction::tell_user, errno_message("cannot open token file", path)};
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Error{ErrorAction::tell_user, errno_message("cannot stat", path)};
  if (S_ISDIR(info.st_mode)) return refused(path, "is a directory; name one token file in it.");
  if (!S_ISREG(info.st_mode)) return refused(path, "is not a regular file.");

  const auto file_bytes = static_cast<std::uint64_t>(info.st_size);
  std::vector<std::byte> head(std::min<std::uint64_t>(file_bytes, kLlmcHeaderBytes));
  if (::pread(fd.get(), head.data(), head.size(), 0) != static_cast<ssize_t>(head.size())) {
    return Error{ErrorAction::tell_user, errno_message("cannot read", path)};
  }
  KINTSUGI_TRY_ASSIGN(const TokenSpan tokens, find_tokens(head, file_bytes, format, path));
  void* map = ::mmap(nullptr, file_bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) return Error{ErrorAction::tell_user, errno_message("cannot map", path)};
  // Samples come in random order: the kernel's own read-ahead would fetch neighbours nobody asked for.
  ::posix_madvise(map, file_bytes, POSIX_MADV_RANDOM);
  return std::shared_ptr<const TokenFile>(
      new TokenFile(path, format, tokens, static_cast<const std::byte*>(map), file_bytes));
}

TokenFile::TokenFile(std::string path, TokenFormat format, TokenSpan tokens, const std::byte* map,
                     std::size_t map_bytes)
    : path_(std::move(path)), format_(format), tokens_(tokens), map_(map), map_bytes_(map_bytes) {}

TokenFile::~TokenFile() {
  ::munmap(const_cast<std::byte*>(map_), map_bytes_);
}

const std::byte* TokenFile::at(std::uint64_t token) const {
  return map_ + tokens_.begin_bytes + token * tokens_.token_bytes;
}

Result<void> TokenFile::read(std::uint64_t first, std::span<std::int32_t> out, std::int64_t vocabulary) const {
  KINTSUGI_ASSERT(first <= token_count() && out.size() <= token_count() - first);
  const std::int64_t largest =
      tokens_.token_bytes == 2 ? widen<std::uint16_t>(at(first), out) : widen<std::uint32_t>(at(first), out);
  if (largest < vocabulary) return {};
  const std::uint64_t position = first_outside(first, out.size(), vocabulary).value_or(first);
  std::uint32_t token = 0;
  read_raw(position, {&token, 1});
  return refused(path_, "token " + std::to_string(position) + " is " + std::to_string(token) +
                            ", outside the model's vocabulary of " + std::to_string(vocabulary) +
                            ". Check data.tokens and model.vocabulary, or prepare the file again.");
}

void TokenFile::read_raw(std::uint64_t first, std::span<std::uint32_t> out) const {
  KINTSUGI_ASSERT(first <= token_count() && out.size() <= token_count() - first);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = 0;
    std::memcpy(&out[i], at(first + i), tokens_.token_bytes);  // little-endian: the low bytes
  }
}

std::optional<std::uint64_t> TokenFile::first_outside(std::uint64_t first, std::uint64_t count,
                                                      std::int64_t vocabulary) const {
  KINTSUGI_ASSERT(first <= token_count() && count <= token_count() - first);
  const std::uint64_t below = tokens_.token_bytes == 2 ? count_below<std::uint16_t>(at(first), count, vocabulary)
                                                       : count_below<std::uint32_t>(at(first), count, vocabulary);
  if (below == count) return std::nullopt;
  return first + below;
}

void TokenFile::will_need(std::uint64_t first, std::uint64_t count) const {
  KINTSUGI_ASSERT(first <= token_count() && count <= token_count() - first);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = (tokens_.begin_bytes + first * tokens_.token_bytes) / page * page;
  const std::size_t end = tokens_.begin_bytes + (first + count) * tokens_.token_bytes;
  ::posix_madvise(const_cast<std::byte*>(map_) + begin, end - begin, POSIX_MADV_WILLNEED);
}

}  // namespace kintsugi
