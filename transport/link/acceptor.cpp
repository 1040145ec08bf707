#include "transport/link/acceptor.hpp"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>

#include "transport/link/stream_link.hpp"

namespace kintsugi::transport {

namespace {

constexpr int kBacklog = 512;
constexpr std::size_t kRememberedSources = 1024;      // past it, new sources share one entry
constexpr Duration kAcceptPause = milliseconds(100);  // after a failed accept: out of descriptors, mostly

Error listen_error(const std::string& where, int code) {
  const std::string what = "cannot listen on " + where + ": ";
  switch (code) {
    case EADDRINUSE:
      return {ErrorAction::tell_user, what + "another process has this port; stop it, or choose another port"};
    case EACCES: return {ErrorAction::tell_user, what + "ports below 1024 need privileges; choose a port from 1024 up"};
    case EADDRNOTAVAIL:
      return {ErrorAction::tell_user, what + "this machine has no such address; choose one that `ip address` shows"};
    default: return {ErrorAction::tell_user, what + strerror(code)};
  }
}

}  // namespace

std::string ListenAddress::text() const {
  return (address.find(':') != std::string::npos ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

Result<FileDescriptor> open_listener(const std::string& address, std::uint16_t port) {
  const std::string where = ListenAddress{address.empty() ? "0.0.0.0" : address, port}.text();
  ErrorCode bad_address;
  const asio::ip::address numeric =
      address.empty() ? asio::ip::address(asio::ip::address_v4::any()) : asio::ip::make_address(address, bad_address);
  if (bad_address) {
    return Error{ErrorAction::tell_user,
                 "cannot listen on `" + address + "`: give the numeric address of an interface"};
  }
  const asio::ip::tcp::endpoint endpoint(numeric, port);
  KINTSUGI_TRY_ASSIGN(FileDescriptor fd, open_tcp_socket(endpoint.protocol().family()));
  // A restarted supervisor takes its port back from connections in TIME_WAIT; a live listener still keeps it.
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0)
    return listen_error(where, errno);
  if (::listen(fd.get(), kBacklog) != 0) return listen_error(where, errno);
  return fd;
}

Result<ListenAddress> bound_address(const FileDescriptor& listener) {
  asio::ip::tcp::endpoint endpoint;
  auto bytes = static_cast<socklen_t>(endpoint.capacity());
  if (::getsockname(listener.get(), endpoint.data(), &bytes) != 0) {
    return Error{ErrorAction::tell_user, errno_message("cannot read the address of", "the listening socket")};
  }
  endpoint.resize(bytes);
  return ListenAddress{endpoint.address().to_string(), endpoint.port()};
}

Acceptor::Acceptor(std::shared_ptr<IoThread> io, FileDescriptor listener, ListenRequest request,
                   std::shared_ptr<AtomicStrangerCounts> counts, Logger logger)
    : io_(std::move(io)),
      request_(std::move(request)),
      counts_(std::move(counts)),
      logger_(std::move(logger)),
      tls_(request_.identity.certificate_pem, request_.identity.key_pem),
      listener_(io_->context),
      pause_(io_->context) {
  ErrorCode error;
  // The family matters to nothing here: accept4 is called on the descriptor itself.
  listener_.assign(asio::ip::tcp::v4(), listener.release(), error);
  KINTSUGI_ASSERT_MSG(!error, "the io thread can watch a socket");
  KINTSUGI_ASSERT(request_.stranger_cap > 0);
}

void Acceptor::start() {
  if (io_->stopping) return;
  io_->live.insert(this);
  accept_next();
}

void Acceptor::stop() {
  ErrorCode ignored;
  listener_.close(ignored);
  pause_.cancel();
  io_->live.erase(this);
  while (!strangers_.empty()) {
    strangers_.front().greeter->abort({ErrorAction::cancelled, "the link service stopped"});
  }
  request_.on_link = nullptr;  // it may own what owns the service
}

// accept4 by hand: Asio's accept leaves descriptors to be inherited, and a rank process that inherits a link keeps it
// open after its node has died.
void Acceptor::accept_next() {
  listener_.async_wait(asio::ip::tcp::acceptor::wait_read, [me = shared_from_this()](const ErrorCode& error) {
    if (!error && me->listener_.is_open()) me->accept_one();
  });
}

void Acceptor::accept_one() {
  asio::ip::tcp::endpoint from;
  auto bytes = static_cast<socklen_t>(from.capacity());
  const int fd = ::accept4(listener_.native_handle(), from.data(), &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) {
    from.resize(bytes);
    asio::ip::tcp::socket socket(io_->context);
    ErrorCode error;
    socket.assign(from.protocol(), fd, error);
    KINTSUGI_ASSERT_MSG(!error, "the io thread can watch a socket");
    socket.set_option(asio::ip::tcp::no_delay(true), error);
    admit(std::move(socket), from);
    return accept_next();
  }
  if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return accept_next();
  logger_.error("cannot accept connections; trying again", {{"error", std::string(strerror(errno))}});
  pause_.expires_after(to_chrono(kAcceptPause));
  pause_.async_wait([me = shared_from_this()](const ErrorCode& error) {
    if (!error) me->accept_next();
  });
}

void Acceptor::admit(asio::ip::tcp::socket socket, const asio::ip::tcp::endpoint& from) {
  ++counts_->accepted;
  if (strangers_.size() >= request_.stranger_cap) make_room();
  const Place place = strangers_.insert(strangers_.end(), {from.address().to_string(), nullptr});
  counts_->present = strangers_.size();
  place->greeter = greet_dialer(io_->context, tls_.wrap(std::move(socket)), request_.identity.token,
                                request_.incarnation, request_.before_welcome, request_.greeting_deadline,
                                [me = shared_from_this(), place, address = to_text(from)](Result<Proven> result) {
                                  me->on_greeted(place, address, std::move(result));
                                });
}

// A flood from one source pushes out its own connections, not those of others.
void Acceptor::make_room() {
  std::map<std::string, std::size_t> crowd;
  for (const Stranger& s : strangers_) ++crowd[s.source];
  const auto worst =
      std::max_element(crowd.begin(), crowd.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto victim =
      std::find_if(strangers_.begin(), strangers_.end(), [&](const Stranger& s) { return s.source == worst->first; });
  const std::shared_ptr<Greeter> greeter = victim->greeter;
  greeter->abort({ErrorAction::fail_link, "too many connections without a greeting"});
}

void Acceptor::on_greeted(Place place, const std::string& address, Result<Proven> result) {
  const std::string source = place->source;
  const std::shared_ptr<Greeter> keep = std::move(place->greeter);
  strangers_.erase(place);
  counts_->present = strangers_.size();
  if (!result) return note_stranger(source, result.error());
  if (!request_.on_link) return;  // stopped
  ++counts_->proven;
  auto link =
      std::make_shared<StreamLink>(io_, std::move(result->carrier), LinkPeer{address, result->peer}, request_.options);
  link->start(request_.on_link(link));
}

void Acceptor::note_stranger(const std::string& source, const Error& why) {
  if (why.action == ErrorAction::cancelled) return;
  ++(why.action == ErrorAction::refuse ? counts_->refused : counts_->dropped);
  const bool known = dropped_by_source_.contains(source) || dropped_by_source_.size() < kRememberedSources;
  if (dropped_by_source_[known ? source : "others"]++ > 0) return;
  logger_.warning("a stranger at the control port was turned away; more from this source are only counted",
                  {{"source", source}, {"why", why.message}});
}

}  // namespace kintsugi::transport
