#include "transport/ucx/path_probe.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace kintsugi::transport::ucx {

namespace {

constexpr int kBacklog = 4096;  // knocks that nobody takes off the queue; the kernel caps it
// On the wire: a byte with their number, then each as family (4 or 6), port and 16 bytes.
constexpr std::size_t kAddressBytes = 1 + 2 + 16;

socklen_t size_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

void append(std::vector<std::byte>& out, const sockaddr_storage& address) {
  std::array<std::byte, kAddressBytes> bytes{};
  if (address.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof v4);
    bytes[0] = std::byte{4};
    std::memcpy(&bytes[1], &v4.sin_port, 2);
    std::memcpy(&bytes[3], &v4.sin_addr, 4);
  } else {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address, sizeof v6);
    bytes[0] = std::byte{6};
    std::memcpy(&bytes[1], &v6.sin6_port, 2);
    std::memcpy(&bytes[3], &v6.sin6_addr, 16);
  }
  out.insert(out.end(), bytes.begin(), bytes.end());
}

sockaddr_storage read_address(std::span<const std::byte> bytes) {
  sockaddr_storage out{};
  if (bytes[0] == std::byte{4}) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_port, &bytes[1], 2);
    std::memcpy(&v4.sin_addr, &bytes[3], 4);
    std::memcpy(&out, &v4, sizeof v4);
  } else {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    std::memcpy(&v6.sin6_port, &bytes[1], 2);
    std::memcpy(&v6.sin6_addr, &bytes[3], 16);
    std::memcpy(&out, &v6, sizeof v6);
  }
  return out;
}

bool is_loopback(const ifaddrs& entry) {
  return (entry.ifa_flags & IFF_LOOPBACK) != 0;
}

// Those that other machines can use; a link-local one needs a scope that only this machine knows.
bool is_usable(const ifaddrs& entry, const std::string& interface) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) return false;
  if (!interface.empty() && interface != entry.ifa_name) return false;
  if (entry.ifa_addr->sa_family == AF_INET) return true;
  if (entry.ifa_addr->sa_family != AF_INET6) return false;
  sockaddr_in6 v6{};
  std::memcpy(&v6, entry.ifa_addr, sizeof v6);
  return !IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr);
}

std::vector<sockaddr_storage> addresses_of(const std::string& interface) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, ::freeifaddrs);
  std::vector<sockaddr_storage> own, loopback;
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    if (!is_usable(*at, interface)) continue;
    sockaddr_storage address{};
    std::memcpy(&address, at->ifa_addr,
                at->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    (is_loopback(*at) ? loopback : own).push_back(address);
  }
  return own.empty() ? loopback : own;
}

struct Knock {
  RankId peer;
  FileDescriptor socket;
};

// Answered at once (true), or under way (in `knocks`), or refused by this machine's own routes.
bool knock(RankId peer, const sockaddr_storage& address, std::vector<Knock>& knocks) {
  FileDescriptor fd(::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return true;  // no descriptor is no evidence
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size_of(address)) == 0) return true;
  if (errno == EINPROGRESS) knocks.push_back({peer, std::move(fd)});
  return false;
}

bool has_answered(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && (error == 0 || error == ECONNREFUSED);
}

}  // namespace

Result<ProbeListener> ProbeListener::open(const std::string& interface) {
  ProbeListener out;
  out.addresses_.push_back(std::byte{0});
  for (sockaddr_storage address : addresses_of(interface)) {
    if (out.sockets_.size() == kMostAddresses) break;
    FileDescriptor fd(::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    socklen_t size = size_of(address);
    auto* name = reinterpret_cast<sockaddr*>(&address);
    if (fd.get() < 0 || ::bind(fd.get(), name, size) != 0 || ::listen(fd.get(), kBacklog) != 0) continue;
    if (::getsockname(fd.get(), name, &size) != 0) continue;
    append(out.addresses_, address);
    out.sockets_.push_back(std::move(fd));
  }
  if (out.sockets_.empty()) {
    return Error{ErrorAction::tell_user, "no address of " +
                                             (interface.empty() ? "any interface" : "interface '" + interface + "'") +
                                             " can be listened on: name one for data that is up and has an address"};
  }
  out.addresses_[0] = static_cast<std::byte>(out.sockets_.size());
  return out;
}

Result<std::vector<sockaddr_storage>> take_probe_addresses(std::span<const std::byte>& bytes) {
  const Error wrong{ErrorAction::fail_link, "the data address of a rank cannot be read; are all nodes of one version?"};
  if (bytes.empty()) return wrong;
  const auto count = static_cast<std::size_t>(bytes[0]);
  if (count > ProbeListener::kMostAddresses || bytes.size() < 1 + count * kAddressBytes) return wrong;
  std::vector<sockaddr_storage> out;
  for (std::size_t i = 0; i < count; ++i) {
    const auto one = bytes.subspan(1 + i * kAddressBytes, kAddressBytes);
    if (one[0] != std::byte{4} && one[0] != std::byte{6}) return wrong;
    out.push_back(read_address(one));
  }
  bytes = bytes.subspan(1 + count * kAddressBytes);
  return out;
}

std::set<RankId> unreachable(const std::map<RankId, std::vector<sockaddr_storage>>& peers, Duration limit) {
  std::set<RankId> silent;
  std::vector<Knock> knocks;
  for (const auto& [rank, addresses] : peers) {
    const bool answered = std::any_of(addresses.begin(), addresses.end(),
                                      [&, peer = rank](const auto& address) { return knock(peer, address, knocks); });
    if (!answered && !addresses.empty()) silent.insert(rank);
  }
  const SteadyClock clock;
  const Instant until = clock.now() + limit;
  while (true) {
    std::erase_if(knocks, [&](const Knock& k) { return !silent.contains(k.peer); });
    const Duration left = until - clock.now();
    if (knocks.empty() || left.ns <= 0) return silent;
    std::vector<pollfd> waiting;
    for (const Knock& k : knocks) waiting.push_back({k.socket.get(), POLLOUT, 0});
    if (::poll(waiting.data(), waiting.size(), static_cast<int>(left.ms()) + 1) < 0) continue;
    std::vector<Knock> open;
    for (std::size_t i = 0; i < knocks.size(); ++i) {
      if (waiting[i].revents == 0)
        open.push_back(std::move(knocks[i]));
      else if (has_answered(knocks[i].socket.get()))
        silent.erase(knocks[i].peer);
    }
    knocks = std::move(open);
  }
}

}  // namespace kintsugi::transport::ucx
