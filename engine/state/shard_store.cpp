#include "engine/state/shard_store.hpp"

#include <cstring>
#include <new>

#include "base/assert.hpp"
#include "base/units.hpp"

namespace kintsugi {

namespace {
constexpr std::uint64_t kApplying = 1;

std::size_t array_bytes(const Shard& shard) {
  return align_up(static_cast<std::size_t>(shard.count) * sizeof(float), kShardStoreAlignment);
}

std::uint64_t check_word(const ShardHeader& header) {
  return digest_of({reinterpret_cast<const std::byte*>(&header), offsetof(ShardHeader, check)}).low;
}

bool is_whole(const ShardHeader& header) {
  return header.magic == ShardHeader::kMagic && header.check == check_word(header);
}

// After reading what lies under `seen`: true if no byte changed meanwhile.
bool is_still(const ShardHeader& header, const ShardVersion& seen) {
  std::atomic_thread_fence(std::memory_order_acquire);
  return header.phase.load(std::memory_order_relaxed) == seen.version.value << 1;
}

std::optional<ShardVersion> version_of(const ShardHeader& header) {
  const std::uint64_t phase = header.phase.load(std::memory_order_acquire);
  if ((phase & kApplying) != 0) return std::nullopt;
  const ShardVersion version{
      .version = Step{phase >> 1},
      .updates = header.updates.load(std::memory_order_relaxed),
      .digest = {header.digest_high.load(std::memory_order_relaxed), header.digest_low.load(std::memory_order_relaxed)},
      .writer = Incarnation{header.writer.load(std::memory_order_relaxed)}};
  if (!is_still(header, version)) return std::nullopt;
  return version;
}

}  // namespace

ShardStoreLayout::ShardStoreLayout(const Shard& shard) {
  KINTSUGI_ASSERT(shard.count > 0);
  master = sizeof(ShardHeader);
  moment1 = master + array_bytes(shard);
  moment2 = moment1 + array_bytes(shard);
  bytes = moment2 + array_bytes(shard);
}

std::optional<ShardVersion> stable_version(std::span<const std::byte> copy, ShardId shard) {
  if (copy.size() < sizeof(ShardHeader)) return std::nullopt;
  const ShardHeader& header = *std::launder(reinterpret_cast<const ShardHeader*>(copy.data()));
  if (!is_whole(header) || header.shard != shard.value) return std::nullopt;
  return version_of(header);
}

ShardSlot::ShardSlot(std::span<std::byte> segment, const Shard& shard)
    : base_(segment.data()), shard_(shard), layout_(shard) {
  KINTSUGI_ASSERT(reinterpret_cast<std::uintptr_t>(base_) % kShardStoreAlignment == 0);
  KINTSUGI_ASSERT(layout_.bytes <= segment.size());
}

ShardHeader& ShardSlot::header() const {
  return *std::launder(reinterpret_cast<ShardHeader*>(base_));
}

std::span<float> ShardSlot::array(std::size_t at) const {
  return {reinterpret_cast<float*>(base_ + at), static_cast<std::size_t>(shard_.count)};
}

ShardState ShardSlot::state() const {
  return {array(layout_.master), array(layout_.moment1), array(layout_.moment2)};
}

void ShardSlot::format(Incarnation writer) const {
  ShardHeader& fresh = *new (base_) ShardHeader;  // APPLYING, no magic
  std::atomic_thread_fence(std::memory_order_release);
  fresh.writer.store(writer.value, std::memory_order_relaxed);
  const std::size_t used = static_cast<std::size_t>(shard_.count) * sizeof(float);
  for (const std::size_t at : {layout_.master, layout_.moment1, layout_.moment2}) {
    std::memset(base_ + at + used, 0, array_bytes(shard_) - used);
  }
  fresh.magic = ShardHeader::kMagic;
  fresh.shard = shard_.id.value;
  fresh.group = shard_.group.value;
  fresh.offset = static_cast<std::uint64_t>(shard_.offset);
  fresh.count = static_cast<std::uint64_t>(shard_.count);
  fresh.check = check_word(fresh);
}

bool ShardSlot::is_formatted() const {
  const ShardHeader& found = header();
  return is_whole(found) && found.shard == shard_.id.value && found.group == shard_.group.value &&
         found.offset == static_cast<std::uint64_t>(shard_.offset) &&
         found.count == static_cast<std::uint64_t>(shard_.count);
}

std::optional<ShardVersion> ShardSlot::stable() const {
  return is_formatted() ? version_of(header()) : std::nullopt;
}

std::span<const std::byte> ShardSlot::digest_bytes() const {
  static_assert(offsetof(ShardHeader, digest_low) == offsetof(ShardHeader, digest_high) + 8);
  return {reinterpret_cast<const std::byte*>(&header().digest_high), sizeof(Digest)};
}

bool ShardSlot::still(const ShardVersion& seen) const {
  return is_still(header(), seen);
}

void ShardSlot::begin(Incarnation writer) const {
  KINTSUGI_ASSERT_MSG(is_formatted(), "a slot is formatted before it is written");
  ShardHeader& at = header();
  at.phase.store(at.phase.load(std::memory_order_relaxed) | kApplying, std::memory_order_relaxed);
  // No later store, of the writer or of state, becomes visible before APPLYING.
  std::atomic_thread_fence(std::memory_order_release);
  at.writer.store(writer.value, std::memory_order_relaxed);
}

void ShardSlot::finish(const ShardVersion& next) const {
  ShardHeader& at = header();
  KINTSUGI_ASSERT_MSG((at.phase.load(std::memory_order_relaxed) & kApplying) != 0, "finish follows begin");
  at.updates.store(next.updates, std::memory_order_relaxed);
  at.digest_high.store(next.digest.high, std::memory_order_relaxed);
  at.digest_low.store(next.digest.low, std::memory_order_relaxed);
  at.writer.store(next.writer.value, std::memory_order_relaxed);
  at.phase.store(next.version.value << 1, std::memory_order_release);
}

}  // namespace kintsugi
