// What a rank knows of the newest decisions, in memory that outlives it: it writes a record here before it acts on it, so
// that the node can read it whenever the process dies.
//
// A ring of slots, written in turn; the one with the highest sequence number whose checksum holds is the newest. A write
// that is cut off leaves the others, so the newest record that was acted on is always there. The older ones are for the
// report: what a process decided and died before it could say.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kintsugi {

// Borrowed memory; cheap to copy. One writer; any number of readers, in any process.
class RecordBoard {
 public:
  static constexpr std::size_t kMaxBytes = 2016;  // of what is written; a record takes some 250

  // `memory`: zero or written by a board; aligned to 64, of at least bytes().
  explicit RecordBoard(std::span<std::byte> memory);
  static constexpr std::size_t kSlots = 32;
  static constexpr std::size_t bytes() { return kSlots * sizeof(Slot); }

  // Asserts that `record` is not empty and fits.
  void write(std::span<const std::byte> record) const;
  // Empty: nothing was ever written.
  std::optional<std::vector<std::byte>> newest() const;
  // Those that are whole, as they were written.
  std::vector<std::vector<std::byte>> all() const;

 private:
  // Words, so that a reader beside the writer is no data race: it sees a wrong checksum and takes the other slot.
  struct Slot {
    std::atomic<std::uint64_t> sequence;  // from 1
    std::atomic<std::uint64_t> length;    // bytes
    std::atomic<std::uint64_t> check;     // low half of the XXH3-128 of sequence, length and bytes
    std::atomic<std::uint64_t> reserved;
    std::atomic<std::uint64_t> words[kMaxBytes / 8];
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  struct Entry {
    std::uint64_t sequence = 0;
    std::vector<std::byte> bytes;
  };
  static std::optional<Entry> read(const Slot& slot);
  std::optional<Entry> newest_entry() const;
  std::vector<const Slot*> by_age() const;

  Slot* slots_;
};

}  // namespace kintsugi
