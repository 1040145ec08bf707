#include "engine/state/state_digest.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace kintsugi {

Digest shard_digest(ConstShardState state) {
  const std::size_t count = state.master.size();
  KINTSUGI_ASSERT(state.moment1.size() == count && state.moment2.size() == count);
  Hasher hasher;
  for (std::size_t first = 0; first < count; first += kDigestBlockElements) {
    const std::size_t block = std::min(kDigestBlockElements, count - first);
    hasher.update(std::as_bytes(state.master.subspan(first, block)));
    hasher.update(std::as_bytes(state.moment1.subspan(first, block)));
    hasher.update(std::as_bytes(state.moment2.subspan(first, block)));
  }
  return hasher.finish();
}

Digest state_digest(const StatePosition& position, std::span<const ShardDigest> shards) {
  Hasher hasher;
  hasher.update_u64(position.job_identity.high);
  hasher.update_u64(position.job_identity.low);
  hasher.update_u64(position.step.value);
  hasher.update_u64(position.updates);
  hasher.update_u64(position.data_position);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    KINTSUGI_ASSERT_MSG(i == 0 || shards[i - 1].shard < shards[i].shard, "shards come in the order of their ids");
    hasher.update_u64(shards[i].shard.value);
    hasher.update_u64(shards[i].digest.high);
    hasher.update_u64(shards[i].digest.low);
  }
  return hasher.finish();
}

}  // namespace kintsugi
