// A file of tokens, mapped into memory. Three formats people already have: flat little-endian uint16 or uint32
// (nanoGPT), and llm.c's .bin: a header of 256 int32 (magic 20240520, version 1, token count), then uint16 tokens.
//
// Tokens are checked against the vocabulary as they are read, inside the loop that widens them (a running maximum,
// which vectorises), and not by a scan at open: every rank opens the file whenever it starts, and a scan of 100 GB
// would cost each of them a minute before the first step. `first_outside` is the scan, for whoever wants it once
// (inspect, submit).
//
// The file must not shrink while it is open: a page that is gone, or that the disk cannot read, ends the process with
// SIGBUS, and the restarted one gets the error from open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.hpp"
#include "engine/model/job_config.hpp"

namespace kintsugi {

// Where the tokens of a file lie.
struct TokenSpan {
  std::uint64_t begin_bytes = 0;
  std::uint64_t token_bytes = 2;
  std::uint64_t count = 0;
};

constexpr std::size_t kLlmcHeaderBytes = 256 * sizeof(std::int32_t);

const char* to_string(TokenFormat format);

// `head`: the first bytes of the file, at least min(file_bytes, kLlmcHeaderBytes). `source` names the file in messages.
// Error{tell_user}: wrong magic, version or count, an odd size, no tokens.
Result<TokenSpan> find_tokens(std::span<const std::byte> head, std::uint64_t file_bytes, TokenFormat format,
                              const std::string& source);

// Immutable after open; reads from any thread.
class TokenFile {
 public:
  // Error{tell_user}: as find_tokens, or the file is missing, unreadable, or not a regular file.
  static Result<std::shared_ptr<const TokenFile>> open(const std::string& path, TokenFormat format);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::string& path() const { return path_; }
  TokenFormat format() const { return format_; }
  std::uint64_t token_count() const { return tokens_.count; }

  // Widens tokens [first, first + out.size()), which must exist. Error{tell_user} names the first token >= vocabulary.
  Result<void> read(std::uint64_t first, std::span<std::int32_t> out, std::int64_t vocabulary) const;
  // As stored, unchecked.
  void read_raw(std::uint64_t first, std::span<std::uint32_t> out) const;
  // Position of the first token of [first, first + count) that is >= vocabulary.
  std::optional<std::uint64_t> first_outside(std::uint64_t first, std::uint64_t count, std::int64_t vocabulary) const;
  // Starts reading the tokens from disk; returns at once.
  void will_need(std::uint64_t first, std::uint64_t count) const;

 private:
  TokenFile(std::string path, TokenFormat format, TokenSpan tokens, const std::byte* map, std::size_t map_bytes);
  const std::byte* at(std::uint64_t token) const;

  std::string path_;
  TokenFormat format_;
  TokenSpan tokens_;
  const std::byte* map_;
  std::size_t map_bytes_;
};

}  // namespace kintsugi
