// Text to tokens: files and trees become one flat uint16 token file over the 256 bytes. Token 0 stands between
// documents; a text holds no NUL (a file that does is binary and skipped), so the separator is never ambiguous.
//
// The order is that of the arguments; within a tree, of the paths, byte by byte: the same tree gives the same file. In
// a tree, hidden entries, symbolic links (so no loop is ever entered) and what is neither file nor directory are passed
// over; an argument may be a link. The file appears whole, by rename, or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace kintsugi {

constexpr std::int64_t kByteVocabulary = 256;
constexpr std::uint16_t kDocumentSeparator = 0;

struct PrepareStatistics {
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;  // separators included
  std::uint64_t skipped_binary = 0;
  std::uint64_t skipped_unreadable = 0;  // files and directories
  std::uint64_t skipped_other = 0;       // links, hidden entries, devices, empty files
  std::string first_unreadable;          // why, with its path; empty: none
  bool capped = false;                   // max_bytes ended it; the last document may be cut
  double unigram_entropy_nats = 0;       // the loss of the best model that ignores context

  // One line for people: what went in, and what was left out and why.
  std::string summary() const;
};

struct PrepareOptions {
  std::vector<std::string> inputs;  // files and directories
  std::string output;
  std::uint64_t max_bytes = UINT64_MAX;  // of text and separators, one token each
  // Called after every document and at least each 16 MiB, on the calling thread. May be empty.
  std::function<void(const PrepareStatistics&)> progress;
};

// Error{tell_user}: an input does not exist, nothing was left to write, or the output cannot be written.
Result<PrepareStatistics> prepare(const PrepareOptions& options);

}  // namespace kintsugi
