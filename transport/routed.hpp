// One PointToPoint over several carriers: a table says which carries each peer (shm inside the node, ucx between
// nodes; or ucx for all). Built from the plan; it adds nothing but the look-up.
#pragma once

#include <memory>
#include <vector>

#include "transport/point_to_point.hpp"

namespace kintsugi::transport {

class Routed final : public PointToPoint {
 public:
  struct Route {
    std::unique_ptr<PointToPoint> carrier;
    std::vector<RankId> peers;
  };

  // Each peer is on exactly one route (asserted).
  explicit Routed(std::vector<Route> routes);

  Result<SendTicket> send(RankId to, const MessageKey& key, std::span<const std::byte> bytes,
                          Instant deadline) override;
  Result<void> wait_sent(SendTicket ticket, Instant deadline) override;
  Result<Arrival> receive(RankId from, const MessageKey& key, std::size_t bytes, Instant deadline) override;
  void release(const Arrival& arrival) override;
  void cancel(const Error& why) override;
  std::map<RankId, PeerTraffic> traffic() const override;
  std::set<RankId> lost_peers() const override;

 private:
  PointToPoint& carrier_of(RankId peer) const;

  std::vector<Route> routes_;
  std::map<RankId, PointToPoint*> table_;
};

}  // namespace kintsugi::transport
