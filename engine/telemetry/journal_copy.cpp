#include "engine/telemetry/journal_copy.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/telemetry/journal_state.hpp"

namespace kintsugi {

namespace {

constexpr std::size_t kCompactAfter = 16'384;  // entries: some MiB

Error out_of_turn() {
  return {ErrorAction::fail_link, "a piece of the supervisor's journal came out of turn"};
}

}  // namespace

std::vector<JournalPiece> journal_pieces(std::uint64_t cluster_id, JournalStamp stamp,
                                         std::span<const JournalEntry> entries) {
  std::vector<JournalPiece> pieces{{cluster_id, stamp.epoch, true, 0, {}}};
  std::size_t bytes = 0;
  for (const JournalEntry& entry : entries) {
    if (bytes >= kJournalPieceBytes) {
      pieces.push_back({cluster_id, stamp.epoch, false, 0, {}});
      bytes = 0;
    }
    pieces.back().entries.push_back(encode_entry(entry));
    bytes += pieces.back().entries.back().size();
  }
  pieces.back().up_to = stamp.up_to;
  return pieces;
}

Result<void> JournalCopy::take(const JournalPiece& piece) {
  std::vector<JournalEntry> entries;
  for (const std::vector<std::byte>& bytes : piece.entries) {
    KINTSUGI_TRY_ASSIGN(JournalEntry entry, decode_entry(bytes));
    entries.push_back(std::move(entry));
  }
  if (piece.begins) growing_ = Whole{piece.cluster_id, {piece.epoch, 0}, {}};
  Whole& into = growing_ ? *growing_ : kept_;
  if (into.cluster_id != piece.cluster_id || into.stamp.epoch != piece.epoch || piece.epoch == 0) return out_of_turn();
  if (!growing_ && piece.up_to != kept_.stamp.up_to + entries.size()) return out_of_turn();
  into.entries.insert(into.entries.end(), std::make_move_iterator(entries.begin()),
                      std::make_move_iterator(entries.end()));
  if (piece.up_to == 0) return {};
  into.stamp.up_to = piece.up_to;
  if (growing_) kept_ = std::move(*std::exchange(growing_, std::nullopt));
  compact_if_long();
  return {};
}

void JournalCopy::compact_if_long() {
  if (kept_.entries.size() < std::max(kCompactAfter, compact_at_)) return;
  kept_.entries = compacted(kept_.entries);
  compact_at_ = 2 * kept_.entries.size();
}

}  // namespace kintsugi
