// Makes links: listens, dials, adopts. One io thread; every wait has a deadline; stop() ends in bounded time.
//
// A stranger that connects gets a TLS handshake and `greeting_deadline` to prove that it knows the secret. Until then
// it may hold one of `stranger_cap` places and kGreetingCapBytes of memory; a newcomer takes the oldest place of the
// most crowded source. Nothing it sends reaches anyone; each source is logged once and counted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "transport/link/identity.hpp"
#include "transport/link/link.hpp"

namespace kintsugi::transport {

struct ListenRequest {
  std::string address;     // numeric; empty: every interface
  std::uint16_t port = 0;  // 0: any free one
  Identity identity;
  Incarnation incarnation;
  LinkOptions options;
  // A dialer proved itself. The link starts when this returns.
  std::function<LinkCallbacks(std::shared_ptr<Link>)> on_link;
  Duration greeting_deadline = seconds(2);
  std::size_t stranger_cap = 64;
  // On the io thread, before a dialer that proved itself is told this incarnation. May end the process.
  std::function<void()> before_welcome = {};
};

struct ListenAddress {
  std::string address;
  std::uint16_t port = 0;
  std::string text() const;  // HOST:PORT
};

struct DialRequest {
  std::vector<std::string> addresses;  // HOST:PORT each, tried in order, again and again until the deadline
  JoinToken token;
  Hello hello;
  Duration deadline;
  LinkOptions options;
  LinkCallbacks callbacks;
  Duration attempt_deadline = seconds(3);  // one address: connect, TLS, greeting
};

struct StrangerCounts {
  std::uint64_t accepted = 0;  // connections, before any greeting
  std::uint64_t proven = 0;    // those that became links
  std::uint64_t dropped = 0;   // silent, garbage, evicted
  std::uint64_t refused = 0;   // said a proper hello with a wrong secret or version
  std::uint64_t present = 0;   // in their greeting now
};

class LinkService {
 public:
  using DialDone = std::function<void(Result<std::shared_ptr<Link>>)>;

  explicit LinkService(Logger logger);
  ~LinkService();  // stop()
  LinkService(const LinkService&) = delete;
  LinkService& operator=(const LinkService&) = delete;

  // Binds once and keeps the socket. Error{tell_user} names address and port and what to do.
  Result<ListenAddress> listen(ListenRequest request);
  // `done` is called once on the io thread, before the link's first callback. Error{refuse}: refused by every
  // supervisor that answered, or none answered in time. Error{cancelled}: stop().
  void dial(DialRequest request, DialDone done);
  // The same, blocking; not on the io thread.
  Result<std::shared_ptr<Link>> dial_and_wait(DialRequest request);
  // One end of a Unix stream socket whose other end this process gave to a child, or was given by its parent: the
  // descriptor is the credential.
  Result<std::shared_ptr<Link>> adopt_unix(FileDescriptor socket, LinkPeer peer, LinkOptions options,
                                           LinkCallbacks callbacks);

  StrangerCounts strangers() const;
  // Closes all and joins the io thread: at most the longest `linger`. Every on_down has been called. Not on the io
  // thread.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi::transport
