// Goes round the addresses until one supervisor answers, all that answered refused, or the deadline. Internal, io
// thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/link/address.hpp"
#include "transport/link/greeter.hpp"
#include "transport/link/link_service.hpp"

namespace kintsugi::transport {

class Dialer final : public Stoppable, public std::enable_shared_from_this<Dialer> {
 public:
  Dialer(std::shared_ptr<IoThread> io, DialRequest request, LinkService::DialDone done);
  void start();
  void stop() override;

 private:
  void next_address();
  void end_of_round();
  void next_endpoint();
  void connect(const asio::ip::tcp::endpoint& endpoint);
  void greet();
  void failed(const Error& why);
  void end(Result<std::shared_ptr<Link>> result);
  void succeed(Proven proven);
  std::string tried() const;

  const std::shared_ptr<IoThread> io_;
  DialRequest request_;
  LinkService::DialDone done_;  // null: over
  const SteadyClock clock_;
  const TlsContext tls_;
  asio::steady_timer deadline_timer_;
  asio::steady_timer timer_;  // of one attempt, or between rounds
  std::vector<HostPort> addresses_;
  std::size_t next_address_ = 0;
  std::vector<asio::ip::tcp::endpoint> endpoints_;  // of the address being tried, last first
  std::uint64_t attempt_ = 0;                       // tells a late callback from the attempt in progress
  asio::ip::tcp::socket socket_;
  std::shared_ptr<Greeter> greeter_;
  std::optional<Error> refused_;  // by a supervisor, in this round
  std::string last_failure_ = "no answer";
  Duration back_off_ = milliseconds(50);
};

}  // namespace kintsugi::transport
