#include "transport/routed.hpp"

namespace kintsugi::transport {

Routed::Routed(std::vector<Route> routes) : routes_(std::move(routes)) {
  for (const Route& route : routes_) {
    for (const RankId peer : route.peers) {
      const bool is_new = table_.emplace(peer, route.carrier.get()).second;
      KINTSUGI_ASSERT_MSG(is_new, "a peer has one route");
    }
  }
}

PointToPoint& Routed::carrier_of(RankId peer) const {
  const auto route = table_.find(peer);
  KINTSUGI_ASSERT_MSG(route != table_.end(), "every peer of the plan has a route");
  return *route->second;
}

Result<SendTicket> Routed::send(RankId to, const MessageKey& key, std::span<const std::byte> bytes, Instant deadline) {
  return carrier_of(to).send(to, key, bytes, deadline);
}

Result<void> Routed::wait_sent(SendTicket ticket, Instant deadline) {
  return carrier_of(ticket.to).wait_sent(ticket, deadline);
}

Result<Arrival> Routed::receive(RankId from, const MessageKey& key, std::size_t bytes, Instant deadline) {
  return carrier_of(from).receive(from, key, bytes, deadline);
}

void Routed::release(const Arrival& arrival) {
  carrier_of(arrival.from).release(arrival);
}

void Routed::cancel(const Error& why) {
  for (const Route& route : routes_) route.carrier->cancel(why);
}

std::map<RankId, PeerTraffic> Routed::traffic() const {
  std::map<RankId, PeerTraffic> all;
  for (const Route& route : routes_) {
    const auto carried = route.carrier->traffic();
    for (const RankId peer : route.peers) {
      if (const auto found = carried.find(peer); found != carried.end()) all.insert(*found);
    }
  }
  return all;
}

std::set<RankId> Routed::lost_peers() const {
  std::set<RankId> all;
  for (const Route& route : routes_) all.merge(route.carrier->lost_peers());
  return all;
}

}  // namespace kintsugi::transport
