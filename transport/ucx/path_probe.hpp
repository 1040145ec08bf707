// Whether a peer's data network answers at all, asked before UCX connects: its tcp connects by a blocking call, which on a
// path that swallows everything holds the caller up for minutes (DEPENDENCIES, "a silently dead path only by luck").
//
// A path that dies between the probe and the connect still does; whoever is caught in it misses its fence and is succeeded.
//
// Every process listens on an address of its own and never accepts: its kernel completes the handshake, which is all that
// is asked. So a stopped process answers too: the path is probed, not the peer.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/file.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"

namespace kintsugi::transport::ucx {

class ProbeListener {
 public:
  // On `interface`, or on all but loopback; where there is no other, on that. Error{tell_user}: it has no address.
  static Result<ProbeListener> open(const std::string& interface);
  // For peers: where to knock. At most kMostAddresses, the rest is not told.
  const std::vector<std::byte>& addresses() const { return addresses_; }
  static constexpr std::size_t kMostAddresses = 16;

 private:
  std::vector<FileDescriptor> sockets_;
  std::vector<std::byte> addresses_;
};

// Splits off what ProbeListener told from the front of `bytes`; Error{fail_link} when it is no such thing.
Result<std::vector<sockaddr_storage>> take_probe_addresses(std::span<const std::byte>& bytes);

// Of `peers`, those of whom no address answered within `limit`; all are asked at once. A peer without addresses answers.
std::set<RankId> unreachable(const std::map<RankId, std::vector<sockaddr_storage>>& peers, Duration limit);

}  // namespace kintsugi::transport::ucx
