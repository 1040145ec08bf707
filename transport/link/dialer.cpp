#include "transport/link/dialer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "transport/link/stream_link.hpp"

namespace kintsugi::transport {

namespace {
constexpr Duration kMaxBackOff = seconds(1);
}

Dialer::Dialer(std::shared_ptr<IoThread> io, DialRequest request, LinkService::DialDone done)
    : io_(std::move(io)),
      request_(std::move(request)),
      done_(std::move(done)),
      deadline_timer_(io_->context),
      timer_(io_->context),
      socket_(io_->context) {}

void Dialer::start() {
  if (io_->stopping) return stop();
  io_->live.insert(this);
  for (const std::string& text : request_.addresses) {
    Result<HostPort> address = parse_host_port(text);
    if (!address) return end(address.error());
    addresses_.push_back(*address);
  }
  if (addresses_.empty()) return end(Error{ErrorAction::tell_user, "no address to join: give HOST:PORT"});
  deadline_timer_.expires_after(to_chrono(request_.deadline));
  deadline_timer_.async_wait([me = shared_from_this()](const ErrorCode& error) {
    if (error) return;
    me->end(me->refused_
                ? *me->refused_
                : Error{ErrorAction::refuse,
                        fmt::format("no supervisor answered at {} within {} ms (last: {}); check that `kintsugi "
                                    "supervise` runs there and that its port is open",
                                    me->tried(), me->request_.deadline.ms(), me->last_failure_)});
  });
  next_address();
}

void Dialer::stop() {
  end(Error{ErrorAction::cancelled, "the link service stopped"});
}

std::string Dialer::tried() const {
  std::string text;
  for (const std::string& address : request_.addresses) text += (text.empty() ? "" : ", ") + address;
  return text;
}

void Dialer::next_address() {
  if (!done_) return;
  if (next_address_ == addresses_.size()) return end_of_round();
  const std::uint64_t attempt = ++attempt_;
  timer_.expires_after(to_chrono(request_.attempt_deadline));
  timer_.async_wait([me = shared_from_this(), attempt](const ErrorCode& error) {
    if (!error && attempt == me->attempt_) me->failed({ErrorAction::retry, "the name server does not answer"});
  });
  resolve(io_, addresses_[next_address_], [weak = weak_from_this(), attempt](auto endpoints) {
    const std::shared_ptr<Dialer> me = weak.lock();
    if (!me || !me->done_ || attempt != me->attempt_) return;
    if (!endpoints) return me->failed(endpoints.error());
    me->endpoints_.assign(endpoints->rbegin(), endpoints->rend());
    me->next_endpoint();
  });
}

// A refusal may come from an old supervisor while the right one is further down the list; one full round decides.
void Dialer::end_of_round() {
  if (refused_) return end(*refused_);
  next_address_ = 0;
  timer_.expires_after(to_chrono(back_off_));
  back_off_ = std::min(back_off_ * 2, kMaxBackOff);
  timer_.async_wait([me = shared_from_this()](const ErrorCode& error) {
    if (!error) me->next_address();
  });
}

void Dialer::next_endpoint() {
  if (!done_) return;
  if (endpoints_.empty()) {
    ++next_address_;
    return next_address();
  }
  const asio::ip::tcp::endpoint endpoint = endpoints_.back();
  endpoints_.pop_back();
  connect(endpoint);
}

void Dialer::connect(const asio::ip::tcp::endpoint& endpoint) {
  Result<FileDescriptor> fd = open_tcp_socket(endpoint.protocol().family());
  if (!fd) return failed(fd.error());
  const std::uint64_t attempt = ++attempt_;
  ErrorCode error;
  socket_ = asio::ip::tcp::socket(io_->context);
  socket_.assign(endpoint.protocol(), fd->release(), error);
  KINTSUGI_ASSERT_MSG(!error, "the io thread can watch a socket");
  socket_.set_option(asio::ip::tcp::no_delay(true), error);
  timer_.expires_after(to_chrono(request_.attempt_deadline));
  timer_.async_wait([me = shared_from_this(), attempt](const ErrorCode& timer_error) {
    if (timer_error || attempt != me->attempt_) return;
    const Error late{ErrorAction::retry, fmt::format("no answer within {} ms", me->request_.attempt_deadline.ms())};
    if (me->greeter_) return me->greeter_->abort(late);
    me->failed(late);
  });
  socket_.async_connect(endpoint, [me = shared_from_this(), attempt](const ErrorCode& connect_error) {
    if (!me->done_ || attempt != me->attempt_) return;
    if (connect_error) return me->failed({ErrorAction::retry, connect_error.message()});
    me->greet();
  });
}

void Dialer::greet() {
  const std::uint64_t attempt = attempt_;
  const std::string& peer = request_.addresses[next_address_];
  greeter_ = greet_listener(io_->context, tls_.wrap(std::move(socket_)), request_.token, request_.hello, peer,
                            request_.attempt_deadline, [weak = weak_from_this(), attempt](Result<Proven> result) {
                              const std::shared_ptr<Dialer> me = weak.lock();
                              if (!me || !me->done_ || attempt != me->attempt_) return;
                              if (!result) return me->failed(result.error());
                              me->succeed(std::move(*result));
                            });
}

void Dialer::failed(const Error& why) {
  ++attempt_;
  if (why.action == ErrorAction::refuse) refused_ = why;
  last_failure_ = why.message;
  greeter_.reset();
  ErrorCode ignored;
  socket_.close(ignored);
  timer_.cancel();
  next_endpoint();
}

void Dialer::succeed(Proven proven) {
  LinkPeer peer{request_.addresses[next_address_], proven.peer};
  auto link = std::make_shared<StreamLink>(io_, std::move(proven.carrier), std::move(peer), request_.options);
  LinkCallbacks callbacks = std::move(request_.callbacks);
  end(std::shared_ptr<Link>(link));
  link->start(std::move(callbacks));
}

void Dialer::end(Result<std::shared_ptr<Link>> result) {
  const std::shared_ptr<Dialer> keep = shared_from_this();
  const LinkService::DialDone done = std::exchange(done_, nullptr);
  if (!done) return;
  ++attempt_;
  if (const std::shared_ptr<Greeter> greeter = std::move(greeter_)) greeter->abort({ErrorAction::cancelled, "over"});
  ErrorCode ignored;
  socket_.close(ignored);
  timer_.cancel();
  deadline_timer_.cancel();
  io_->live.erase(this);
  request_.callbacks = {};
  done(std::move(result));
}

}  // namespace kintsugi::transport
