// Weights from their primaries to every rank with a use: each primary lends a shard's bytes to all its subscribers; a
// subscriber takes shards in the order in which it needs them.
#pragma once

#include <span>
#include <vector>

#include "transport/collectives/party.hpp"

namespace kintsugi::transport::collectives {

struct ShardVersion {
  ShardId shard;
  Step version;
};

// `weights` must not change until the tickets are sent (wait_all_sent).
Result<std::vector<SendTicket>> publish(const Party& party, const ShardVersion& which, kernels::View weights,
                                        std::span<const RankId> subscribers, Instant deadline);

struct Subscription {
  ShardVersion which;
  RankId primary;
  kernels::View into;
};

// Copies each shard into its view, in the order given, as it arrives.
Result<void> collect(const Party& party, std::span<const Subscription> wanted, Instant deadline);

}  // namespace kintsugi::transport::collectives
