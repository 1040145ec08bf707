#include "transport/collectives/reduce_scatter_tree.hpp"

namespace kintsugi::transport::collectives {

MessageKey partial_sum_key(const Reduction& reduction, TreeNode node) {
  KINTSUGI_ASSERT_MSG(node.first < (1U << 16), "a lane fits 16 bits of the key");
  return {MessageKind::partial_sum, reduction.step, reduction.shard.value,
          (std::uint32_t{reduction.use} << 16) | node.first};
}

Result<std::vector<SendTicket>> send_partial_sums(const Party& party, const Reduction& reduction, RankId primary,
                                                  std::span<const PartialSum> sums, Instant deadline) {
  KINTSUGI_ASSERT_MSG(primary != party.self, "the primary keeps its own sums");
  std::vector<SendTicket> tickets;
  for (const PartialSum& partial : sums) {
    const MessageKey key = partial_sum_key(reduction, partial.node);
    KINTSUGI_TRY_ASSIGN(const SendTicket ticket,
                        party.links.send(primary, key, lendable(party, partial.sum), deadline));
    tickets.push_back(ticket);
  }
  return tickets;
}

Result<void> reduce_to_primary(const Party& party, const Reduction& reduction, const LaneAssignment& assignment,
                               std::span<const PartialSum> own, kernels::View out, Instant deadline) {
  KINTSUGI_ASSERT(out.dtype == kernels::DType::float32);
  const std::vector<TreeSource> sources = assignment.sources();
  std::vector<kernels::View> nodes;
  std::vector<std::int64_t> node_lanes;
  std::vector<HeldArrival> held;  // until the sum is done
  held.reserve(sources.size());
  std::size_t own_used = 0;
  for (const TreeSource& source : sources) {
    node_lanes.push_back(source.node.count);
    if (source.rank == party.self) {
      KINTSUGI_ASSERT_MSG(own_used < own.size() && own[own_used].node == source.node, "own sums are this rank's nodes");
      nodes.push_back(own[own_used++].sum);
    } else {
      KINTSUGI_TRY_ASSIGN(
          const Arrival arrival,
          party.links.receive(source.rank, partial_sum_key(reduction, source.node), out.bytes(), deadline));
      held.emplace_back(party.links, arrival);
      nodes.push_back(party.device.host_visible(arrival.bytes, kernels::DType::float32));
    }
    KINTSUGI_ASSERT(nodes.back().count == out.count);
  }
  KINTSUGI_ASSERT(own_used == own.size());
  party.device.ops().tree_sum(party.stream, out, nodes, node_lanes, assignment.tree().lanes());
  return {};
}

}  // namespace kintsugi::transport::collectives
