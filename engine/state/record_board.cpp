#include "engine/state/record_board.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/assert.hpp"
#include "base/digest.hpp"
#include "base/units.hpp"

namespace kintsugi {

namespace {

std::uint64_t check_word(std::uint64_t sequence, std::span<const std::byte> bytes) {
  Hasher hasher;
  hasher.update_u64(sequence);
  hasher.update_u64(bytes.size());
  hasher.update(bytes);
  return hasher.finish().low;
}

std::size_t words_of(std::size_t bytes) {
  return align_up(bytes, sizeof(std::uint64_t)) / sizeof(std::uint64_t);
}

}  // namespace

RecordBoard::RecordBoard(std::span<std::byte> memory) : slots_(std::launder(reinterpret_cast<Slot*>(memory.data()))) {
  KINTSUGI_ASSERT(reinterpret_cast<std::uintptr_t>(memory.data()) % 64 == 0 && memory.size() >= bytes());
}

void RecordBoard::write(std::span<const std::byte> record) const {
  KINTSUGI_ASSERT(!record.empty() && record.size() <= kMaxBytes);
  const std::optional<Entry> held = newest_entry();
  const std::uint64_t sequence = held ? held->sequence + 1 : 1;
  Slot& slot = slots_[sequence % kSlots];  // never the newest whole one
  for (std::size_t i = 0; i < words_of(record.size()); ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, record.data() + 8 * i, std::min<std::size_t>(8, record.size() - 8 * i));
    slot.words[i].store(word, std::memory_order_relaxed);
  }
  slot.length.store(record.size(), std::memory_order_relaxed);
  slot.check.store(check_word(sequence, record), std::memory_order_relaxed);
  slot.sequence.store(sequence, std::memory_order_release);
}

std::optional<RecordBoard::Entry> RecordBoard::read(const Slot& slot) {
  Entry entry;
  entry.sequence = slot.sequence.load(std::memory_order_acquire);
  const std::uint64_t length = slot.length.load(std::memory_order_relaxed);
  if (entry.sequence == 0 || length == 0 || length > kMaxBytes) return std::nullopt;
  entry.bytes.resize(8 * words_of(length));
  for (std::size_t i = 0; i < words_of(length); ++i) {
    const std::uint64_t word = slot.words[i].load(std::memory_order_relaxed);
    std::memcpy(entry.bytes.data() + 8 * i, &word, 8);
  }
  entry.bytes.resize(length);
  if (slot.check.load(std::memory_order_relaxed) != check_word(entry.sequence, entry.bytes)) return std::nullopt;
  return entry;
}

std::optional<RecordBoard::Entry> RecordBoard::newest_entry() const {
  for (const Slot* slot : by_age()) {
    if (std::optional<Entry> entry = read(*slot)) return entry;
  }
  return std::nullopt;
}

// The newest first, as far as sequence numbers say.
std::vector<const RecordBoard::Slot*> RecordBoard::by_age() const {
  std::vector<std::pair<std::uint64_t, const Slot*>> slots;
  for (const Slot& slot : std::span(slots_, kSlots))
    slots.emplace_back(slot.sequence.load(std::memory_order_acquire), &slot);
  std::stable_sort(slots.begin(), slots.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<const Slot*> sorted;
  for (const auto& [sequence, slot] : slots) sorted.push_back(slot);
  return sorted;
}

std::vector<std::vector<std::byte>> RecordBoard::all() const {
  std::vector<Entry> entries;
  for (const Slot* slot : by_age()) {
    if (std::optional<Entry> entry = read(*slot)) entries.push_back(std::move(*entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.sequence < b.sequence; });
  std::vector<std::vector<std::byte>> records;
  for (Entry& entry : entries) records.push_back(std::move(entry.bytes));
  return records;
}

std::optional<std::vector<std::byte>> RecordBoard::newest() const {
  std::optional<Entry> entry = newest_entry();
  if (!entry) return std::nullopt;
  return std::move(entry->bytes);
}

}  // namespace kintsugi
