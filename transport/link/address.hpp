// HOST:PORT, and names looked up without ever blocking the io thread. Internal.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/result.hpp"
#include "transport/link/asio.hpp"

namespace kintsugi::transport {

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

// "10.0.0.1:7700", "node7:7700", "[::1]:7700". Error{tell_user} names what is wrong.
Result<HostPort> parse_host_port(const std::string& text);
std::string to_text(const asio::ip::tcp::endpoint& endpoint);

using Resolved = std::function<void(Result<std::vector<asio::ip::tcp::endpoint>>)>;
// `done` runs on the io thread, never inside this call; not at all once the context is gone. getaddrinfo cannot be
// cancelled, so it runs on a detached thread of its own: a dead name server never delays stop().
void resolve(const std::shared_ptr<IoThread>& io, const HostPort& address, Resolved done);

// A stream socket that no child process inherits and that does not block.
Result<FileDescriptor> open_tcp_socket(int family);

}  // namespace kintsugi::transport
