// The one way Asio enters (DESIGN 4): error codes, never exceptions. Only .cpp files and internal headers of this
// folder include it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <memory>
#include <unordered_set>

#include "base/clock.hpp"

namespace kintsugi::transport {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

inline std::chrono::nanoseconds to_chrono(Duration d) {
  return std::chrono::nanoseconds(d.ns);
}

// Whatever has operations under way and must be ended by stop(). All calls on the io thread.
class Stoppable {
 public:
  virtual ~Stoppable() = default;
  virtual void stop() = 0;
};

// The io thread's own register; links outlive the service in their owners' hands, so it is shared.
struct IoThread {
  asio::io_context context{1};
  std::unordered_set<Stoppable*> live;  // walked only to stop all, so its order shows nowhere
  bool stopping = false;
};

}  // namespace kintsugi::transport
