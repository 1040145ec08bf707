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
}  // namespace

ShardStoreLayout::ShardStoreLayout(std::span<const Shard> shards) {
  for (const Shard& shard : shards) {
    KINTSUGI_ASSERT(shard.count > 0);
    ShardExtent extent{.shard = shard, .header = bytes_};
    extent.master = extent.header + sizeof(ShardHeader);
    extent.moment1 = extent.master + array_bytes(shard);
    extent.moment2 = extent.moment1 + array_bytes(shard);
    bytes_ = extent.moment2 + array_bytes(shard);
    extents_.push_back(extent);
  }
}

ShardSlot::ShardSlot(std::span<std::byte> segment, const ShardExtent& extent) : base_(segment.data()), extent_(extent) {
  KINTSUGI_ASSERT(reinterpret_cast<std::uintptr_t>(base_) % kShardStoreAlignment == 0);
  KINTSUGI_ASSERT(extent.moment2 + array_bytes(extent.shard) <= segment.size());
}

ShardHeader& ShardSlot::header() const {
  return *std::launder(reinterpret_cast<ShardHeader*>(base_ + extent_.header));
}

std::span<float> ShardSlot::array(std::size_t at) const {
  return {reinterpret_cast<float*>(base_ + at), static_cast<std::size_t>(extent_.shard.count)};
}

ShardState ShardSlot::state() const {
  return {array(extent_.master), array(extent_.moment1), array(extent_.moment2)};
}

std::uint64_t ShardSlot::check_word() const {
  return digest_of({base_ + extent_.header, offsetof(ShardHeader, check)}).low;
}

void ShardSlot::format(Incarnation writer) const {
  ShardHeader& fresh = *new (base_ + extent_.header) ShardHeader;  // APPLYING, no magic
  std::atomic_thread_fence(std::memory_order_release);
  fresh.writer.store(writer.value, std::memory_order_relaxed);
  const std::size_t used = static_cast<std::size_t>(extent_.shard.count) * sizeof(float);
  for (const std::size_t at : {extent_.master, extent_.moment1, extent_.moment2}) {
    std::memset(base_ + at + used, 0, array_bytes(extent_.shard) - used);
  }
  fresh.magic = ShardHeader::kMagic;
  fresh.shard = extent_.shard.id.value;
  fresh.group = extent_.shard.group.value;
  fresh.offset = static_cast<std::uint64_t>(extent_.shard.offset);
  fresh.count = static_cast<std::uint64_t>(extent_.shard.count);
  fresh.check = check_word();
}

bool ShardSlot::is_formatted() const {
  const ShardHeader& found = header();
  return found.magic == ShardHeader::kMagic && found.check == check_word() && found.shard == extent_.shard.id.value &&
         found.group == extent_.shard.group.value && found.offset == static_cast<std::uint64_t>(extent_.shard.offset) &&
         found.count == static_cast<std::uint64_t>(extent_.shard.count);
}

std::optional<ShardVersion> ShardSlot::stable() const {
  if (!is_formatted()) return std::nullopt;
  const ShardHeader& found = header();
  const std::uint64_t phase = found.phase.load(std::memory_order_acquire);
  if ((phase & kApplying) != 0) return std::nullopt;
  const ShardVersion version{
      .version = Step{phase >> 1},
      .updates = found.updates.load(std::memory_order_relaxed),
      .digest = {found.digest_high.load(std::memory_order_relaxed), found.digest_low.load(std::memory_order_relaxed)},
      .writer = Incarnation{found.writer.load(std::memory_order_relaxed)}};
  if (!still(version)) return std::nullopt;
  return version;
}

bool ShardSlot::still(const ShardVersion& seen) const {
  std::atomic_thread_fence(std::memory_order_acquire);
  return header().phase.load(std::memory_order_relaxed) == seen.version.value << 1;
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
