#include "transport/link/address.hpp"

#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

#include <charconv>
#include <thread>

namespace kintsugi::transport {

namespace {

Result<std::vector<asio::ip::tcp::endpoint>> look_up(const HostPort& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(address.host.c_str(), nullptr, &hints, &list);
  if (code != 0) return Error{ErrorAction::retry, "no address of " + address.host + ": " + ::gai_strerror(code)};
  std::vector<asio::ip::tcp::endpoint> endpoints;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
    asio::ip::tcp::endpoint endpoint;
    endpoint.resize(a->ai_addrlen);
    memcpy(endpoint.data(), a->ai_addr, a->ai_addrlen);
    endpoint.port(address.port);
    endpoints.push_back(endpoint);
  }
  ::freeaddrinfo(list);
  return endpoints;
}

}  // namespace

Result<HostPort> parse_host_port(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string::npos)
    host.clear();  // an IPv6 address without brackets
  unsigned port = 0;
  const char* end = text.data() + text.size();
  const bool has_port = colon != std::string::npos && colon + 1 < text.size() &&
                        std::from_chars(text.data() + colon + 1, end, port).ptr == end;
  if (host.empty() || !has_port || port == 0 || port > UINT16_MAX) {
    return Error{ErrorAction::tell_user, "`" + text + "` is no address: write HOST:PORT, or [IPV6]:PORT"};
  }
  return HostPort{host, static_cast<std::uint16_t>(port)};
}

std::string to_text(const asio::ip::tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(endpoint.port());
}

void resolve(const std::shared_ptr<IoThread>& io, const HostPort& address, Resolved done) {
  ErrorCode not_numeric;
  const asio::ip::address numeric = asio::ip::make_address(address.host, not_numeric);
  if (!not_numeric) {
    asio::post(io->context, [endpoint = asio::ip::tcp::endpoint(numeric, address.port), done = std::move(done)] {
      done(std::vector{endpoint});
    });
    return;
  }
  std::thread([weak = std::weak_ptr(io), address, done = std::move(done)]() mutable {
    Result<std::vector<asio::ip::tcp::endpoint>> endpoints = look_up(address);
    if (const std::shared_ptr<IoThread> alive = weak.lock()) {
      asio::post(alive->context, [endpoints = std::move(endpoints), done = std::move(done)] { done(endpoints); });
    }
  }).detach();
}

Result<FileDescriptor> open_tcp_socket(int family) {
  FileDescriptor fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!fd.valid()) return Error{ErrorAction::retry, errno_message("cannot open", "a socket")};
  return fd;
}

}  // namespace kintsugi::transport
