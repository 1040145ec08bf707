#include "transport/collectives/party.hpp"

namespace kintsugi::transport::collectives {

std::span<const std::byte> lendable(const Party& party, const kernels::View& view) {
  if (view.empty()) return {};
  return {party.device.host_address(view), view.bytes()};
}

Result<void> wait_all_sent(PointToPoint& links, std::span<const SendTicket> tickets, Instant deadline) {
  for (const SendTicket& ticket : tickets) KINTSUGI_TRY(links.wait_sent(ticket, deadline));
  return {};
}

}  // namespace kintsugi::transport::collectives
