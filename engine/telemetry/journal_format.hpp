// The bytes of a journal: a header, then frames, each of whole 8-byte words.
//
//   header  magic | version | cluster id | checksum                        32 bytes
//   frame   mark | payload bytes | synced | checksum | payload             24 bytes and the payload: one JournalEntry
//
// A frame's checksum covers the header's checksum and the frame's own position, so that one which was moved, repeated or
// comes from another journal is no frame here. `synced` says up to where the file had reached the disk when the frame was
// written. It tells the two kinds of bad frame apart: with nothing after it, or only frames written before it was synced, it
// is a tail torn by a crash, which nobody was promised; with a frame after it that saw it synced, the file was damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "engine/telemetry/journal_entry.hpp"

namespace kintsugi {

// Far above any job file: a length beyond it is no length.
constexpr std::size_t kJournalEntryLimit = 16 * kMiB;

struct JournalContents {
  std::uint64_t cluster_id = 0;
  std::vector<JournalEntry> entries;
  std::size_t good_bytes = 0;     // the header and all good frames
  std::size_t dropped_bytes = 0;  // the torn tail
};

class JournalFormat {
 public:
  explicit JournalFormat(std::uint64_t cluster_id);

  std::span<const std::byte> header() const { return header_; }
  // The frame of `entry` at `position` of a file of which the first `synced` bytes are on the disk.
  // Error{tell_user} when the entry is larger than the limit.
  Result<std::vector<std::byte>> frame(const JournalEntry& entry, std::uint64_t position, std::uint64_t synced) const;
  // A whole file that is published only once it is on the disk.
  Result<std::vector<std::byte>> file(std::span<const JournalEntry> entries) const;

 private:
  std::vector<std::byte> header_;
};

// Error{tell_user}, which names `path`: no journal, one of another version, a damaged one.
Result<JournalContents> parse_journal(std::span<const std::byte> bytes, std::string_view path);

}  // namespace kintsugi
