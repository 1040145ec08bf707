// The reduction of gradients (DESIGN 3.2): each rank sends the partial sum of each maximal subtree of its lanes to the
// shard's primary, which adds them in lane order whatever the order of arrival. Over all shards it moves the bytes of a
// reduce-scatter, and no plan shows in the bits.
#pragma once

#include <span>
#include <vector>

#include "transport/collectives/lane_assignment.hpp"
#include "transport/collectives/party.hpp"

namespace kintsugi::transport::collectives {

// One gradient of one step: the sum over lanes of a shard's parameters in one of their uses.
struct Reduction {
  Step step;
  ShardId shard;
  std::uint16_t use = 0;
};

MessageKey partial_sum_key(const Reduction& reduction, TreeNode node);

// A partial sum of this rank: (n) f32, complete over the lanes of `node`.
struct PartialSum {
  TreeNode node;
  kernels::View sum;
};

// At a rank that is not the primary. `sums` must not change until their tickets are sent (wait_all_sent).
Result<std::vector<SendTicket>> send_partial_sums(const Party& party, const Reduction& reduction, RankId primary,
                                                  std::span<const PartialSum> sums, Instant deadline);

// At the primary. `own`: its partial sums, exactly those of assignment.nodes_of(self). out (n) f32 = the tree's root;
// it may be one of `own`.
Result<void> reduce_to_primary(const Party& party, const Reduction& reduction, const LaneAssignment& assignment,
                               std::span<const PartialSum> own, kernels::View out, Instant deadline);

}  // namespace kintsugi::transport::collectives
