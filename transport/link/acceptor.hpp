// Takes connections and lets in those who prove themselves. Internal; all calls but open_listener on the io thread.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "base/log.hpp"
#include "transport/link/address.hpp"
#include "transport/link/greeter.hpp"
#include "transport/link/link_service.hpp"

namespace kintsugi::transport {

// Bound and listening. Error{tell_user} says what to do.
Result<FileDescriptor> open_listener(const std::string& address, std::uint16_t port);
Result<ListenAddress> bound_address(const FileDescriptor& listener);

struct AtomicStrangerCounts {
  std::atomic<std::uint64_t> accepted{0}, proven{0}, dropped{0}, refused{0}, present{0};
};

class Acceptor final : public Stoppable, public std::enable_shared_from_this<Acceptor> {
 public:
  Acceptor(std::shared_ptr<IoThread> io, FileDescriptor listener, ListenRequest request,
           std::shared_ptr<AtomicStrangerCounts> counts, Logger logger);
  void start();
  void stop() override;

 private:
  struct Stranger {
    std::string source;
    std::shared_ptr<Greeter> greeter;
  };
  using Place = std::list<Stranger>::iterator;

  void accept_next();
  void accept_one();
  void admit(asio::ip::tcp::socket socket, const asio::ip::tcp::endpoint& from);
  void make_room();
  void on_greeted(Place place, const std::string& address, Result<Proven> result);
  void note_stranger(const std::string& source, const Error& why);

  const std::shared_ptr<IoThread> io_;
  ListenRequest request_;
  const std::shared_ptr<AtomicStrangerCounts> counts_;
  const Logger logger_;
  const TlsContext tls_;
  asio::ip::tcp::acceptor listener_;
  asio::steady_timer pause_;
  std::list<Stranger> strangers_;  // oldest first
  std::map<std::string, std::uint64_t> dropped_by_source_;
};

}  // namespace kintsugi::transport
