// Carries one connection from its TLS handshake to a proven peer, or to its end. Internal, io thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "transport/link/carrier.hpp"
#include "transport/link/greeting.hpp"

namespace kintsugi::transport {

struct Proven {
  std::unique_ptr<TlsCarrier> carrier;
  Hello peer;
};

class Greeter : public std::enable_shared_from_this<Greeter> {
 public:
  // Called once. Error{refuse}: a secret or version was refused; Error{fail_link}: no kintsugi peer, or too slow.
  using Done = std::function<void(Result<Proven>)>;

  virtual ~Greeter() = default;
  virtual void abort(Error why) = 0;
};

std::shared_ptr<Greeter> greet_dialer(asio::io_context& context, std::unique_ptr<TlsCarrier> carrier,
                                      const JoinToken& token, Incarnation incarnation,
                                      std::function<void()> before_welcome, Duration deadline, Greeter::Done done);
std::shared_ptr<Greeter> greet_listener(asio::io_context& context, std::unique_ptr<TlsCarrier> carrier,
                                        const JoinToken& token, const Hello& hello, const std::string& peer,
                                        Duration deadline, Greeter::Done done);

}  // namespace kintsugi::transport
