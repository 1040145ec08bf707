#include "transport/collectives/all_gather_direct.hpp"

namespace kintsugi::transport::collectives {
namespace {
MessageKey weights_key(const ShardVersion& which) {
  return {MessageKind::weights, which.version, which.shard.value, 0};
}
}  // namespace

Result<std::vector<SendTicket>> publish(const Party& party, const ShardVersion& which, kernels::View weights,
                                        std::span<const RankId> subscribers, Instant deadline) {
  std::vector<SendTicket> tickets;
  for (const RankId to : subscribers) {
    if (to == party.self) continue;
    KINTSUGI_TRY_ASSIGN(const SendTicket ticket,
                        party.links.send(to, weights_key(which), lendable(party, weights), deadline));
    tickets.push_back(ticket);
  }
  return tickets;
}

Result<void> collect(const Party& party, std::span<const Subscription> wanted, Instant deadline) {
  for (const Subscription& one : wanted) {
    KINTSUGI_TRY_ASSIGN(const Arrival arrival,
                        party.links.receive(one.primary, weights_key(one.which), one.into.bytes(), deadline));
    const HeldArrival held(party.links, arrival);
    party.device.copy_to_device(party.stream, one.into, held.bytes().data());
  }
  return {};
}

}  // namespace kintsugi::transport::collectives
