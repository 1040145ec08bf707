// Committed state in memory that outlives the process which writes it: one segment a copy of a shard, owned by the node
// (DESIGN 5), so that a copy can change hands or be freed alone. A header, then master weights and the two moments. The
// layout is a function of the shard, so whoever maps the segment finds everything.
//
// A header says STABLE(v) or APPLYING(v -> v + 1): set before the first byte of an update and after its last one. A
// copy found APPLYING is no holder of its shard; it is rebuilt from another copy, never re-applied in place. The order
// of the stores is that of a sequence lock (Boehm, "Can seqlocks get along with programming language memory models?",
// MSPC 2012).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/digest.hpp"
#include "base/ids.hpp"
#include "engine/model/layout.hpp"
#include "engine/state/state_digest.hpp"

namespace kintsugi {

constexpr std::size_t kShardStoreAlignment = 64;

// In memory as it is here; shared between processes of one build. One writer at a time.
struct alignas(kShardStoreAlignment) ShardHeader {
  static constexpr std::uint64_t kMagic = 0x4B4E545348445231;  // "KNTSHDR1"

  std::uint64_t magic = 0;
  std::uint64_t shard = 0;
  std::uint64_t group = 0;
  std::uint64_t offset = 0;             // elements, within the group
  std::uint64_t count = 0;              // elements
  std::uint64_t check = 0;              // low half of the XXH3-128 of the five words above
  std::atomic<std::uint64_t> phase{1};  // version << 1, + 1 while APPLYING
  std::atomic<std::uint64_t> updates{0};
  std::atomic<std::uint64_t> digest_high{0};
  std::atomic<std::uint64_t> digest_low{0};
  std::atomic<std::uint64_t> writer{0};  // incarnation
  std::uint64_t reserved[5] = {};
};
static_assert(sizeof(ShardHeader) == 128 && std::atomic<std::uint64_t>::is_always_lock_free);

// What STABLE(v) vouches for.
struct ShardVersion {
  Step version;               // the step whose end this state is
  std::uint64_t updates = 0;  // t
  Digest digest;              // shard digest
  Incarnation writer;
  auto operator<=>(const ShardVersion&) const = default;
};

// Where a copy's parts lie: bytes from the start of its segment, each a multiple of kShardStoreAlignment. The header is
// at 0.
struct ShardStoreLayout {
  explicit ShardStoreLayout(const Shard& shard);
  std::size_t master = 0;   // (count) f32
  std::size_t moment1 = 0;  // (count) f32
  std::size_t moment2 = 0;  // (count) f32
  std::size_t bytes = 0;    // of the segment
};

// The version a copy of `shard` holds, from its bytes alone; empty if they are no whole copy of that shard. Any process.
std::optional<ShardVersion> stable_version(std::span<const std::byte> copy, ShardId shard);

// One copy of one shard. Borrowed memory; cheap to copy.
class ShardSlot {
 public:
  // `segment`: aligned to kShardStoreAlignment, of at least the layout's size.
  ShardSlot(std::span<std::byte> segment, const Shard& shard);

  const Shard& shard() const { return shard_; }
  const ShardStoreLayout& layout() const { return layout_; }
  ShardState state() const;

  // Makes the slot this shard's, APPLYING from version 0, padding zero: no holder until finish. Whatever was there is
  // lost; nobody else may read the slot meanwhile.
  void format(Incarnation writer) const;
  // The header is whole and names this shard. False in fresh (zero) memory.
  bool is_formatted() const;

  // The version this copy holds; empty if it is APPLYING or not formatted. Any thread or process.
  std::optional<ShardVersion> stable() const;
  // The digest as it lies in the header, high half first: what STABLE vouches for, to be lent with the arrays.
  std::span<const std::byte> digest_bytes() const;
  // After reading state() under `seen`: true if no byte changed meanwhile.
  bool still(const ShardVersion& seen) const;

  // APPLYING before the first byte. The slot is STABLE, or is being rebuilt.
  void begin(Incarnation writer) const;
  // STABLE(next.version) after the last byte. A SKIP is begin and finish with nothing between. Only after begin or
  // format.
  void finish(const ShardVersion& next) const;

 private:
  ShardHeader& header() const;
  std::span<float> array(std::size_t at) const;

  std::byte* base_;
  Shard shard_;
  ShardStoreLayout layout_;
};

}  // namespace kintsugi
