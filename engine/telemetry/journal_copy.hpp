// A copy of a supervisor's journal in the memory of another process: a node keeps one, so that a supervisor may take over on
// another machine (docs/decisions/0016). It comes whole, compacted, in pieces; then entry by entry.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/telemetry/journal_entry.hpp"

namespace kintsugi {

// Which of two copies of one journal is the newer: entries are numbered by each supervisor anew, its own start being 1.
struct JournalStamp {
  std::uint32_t epoch = 0;  // 0: there is none
  std::uint64_t up_to = 0;
  auto operator<=>(const JournalStamp&) const = default;
};

// schemas::JournalPiece, decoded.
struct JournalPiece {
  std::uint64_t cluster_id = 0;
  std::uint32_t epoch = 0;
  bool begins = false;      // of a new copy
  std::uint64_t up_to = 0;  // once this is taken; 0: more pieces of the new copy follow
  std::vector<std::vector<std::byte>> entries;
};

constexpr std::size_t kJournalPieceBytes = 1 << 20;  // about; one entry may be longer

// A whole copy, in order. `entries`: as compacted() leaves them.
std::vector<JournalPiece> journal_pieces(std::uint64_t cluster_id, JournalStamp stamp,
                                         std::span<const JournalEntry> entries);

// One thread at a time.
class JournalCopy {
 public:
  // Error{fail_link}: not what comes next, or not to be decoded; the copy is as before. A new copy replaces the one that is
  // kept once all of it is here, so that a supervisor that is lost half-way leaves the old one.
  Result<void> take(const JournalPiece& piece);

  std::uint64_t cluster_id() const { return kept_.cluster_id; }
  JournalStamp stamp() const { return kept_.stamp; }
  const std::vector<JournalEntry>& entries() const { return kept_.entries; }

 private:
  struct Whole {
    std::uint64_t cluster_id = 0;
    JournalStamp stamp;
    std::vector<JournalEntry> entries;
  };
  void compact_if_long();

  Whole kept_;
  std::optional<Whole> growing_;
  std::size_t compact_at_ = 0;
};

}  // namespace kintsugi
