#include "transport/link/link_service.hpp"

#include <errno.h>
#include <sys/socket.h>

#include <boost/asio/executor_work_guard.hpp>

#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/link/acceptor.hpp"
#include "transport/link/dialer.hpp"
#include "transport/link/stream_link.hpp"

namespace kintsugi::transport {

struct LinkService::Impl {
  explicit Impl(Logger logger_) : logger(std::move(logger_)), work(asio::make_work_guard(io->context)) {
    thread = std::thread([context = io] { context->context.run(); });
  }

  bool on_io_thread() const { return std::this_thread::get_id() == thread.get_id(); }

  // Runs `task` on the io thread, unless it has ended.
  bool post(std::function<void()> task) {
    const std::scoped_lock lock(mutex);
    if (stopped) return false;
    asio::post(io->context, std::move(task));
    return true;
  }

  const Logger logger;
  const std::shared_ptr<IoThread> io = std::make_shared<IoThread>();
  const std::shared_ptr<AtomicStrangerCounts> counts = std::make_shared<AtomicStrangerCounts>();
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::thread thread;
  std::mutex mutex;
  bool stopped = false;
};

namespace {
const Error kStopped{ErrorAction::cancelled, "the link service stopped"};
}

LinkService::LinkService(Logger logger) : impl_(std::make_unique<Impl>(logger.with_component("link"))) {}
LinkService::~LinkService() {
  stop();
}

Result<ListenAddress> LinkService::listen(ListenRequest request) {
  KINTSUGI_ASSERT(request.on_link != nullptr);
  KINTSUGI_TRY_ASSIGN(FileDescriptor fd, open_listener(request.address, request.port));
  KINTSUGI_TRY_ASSIGN(const ListenAddress address, bound_address(fd));
  const auto acceptor =
      std::make_shared<Acceptor>(impl_->io, std::move(fd), std::move(request), impl_->counts, impl_->logger);
  if (!impl_->post([acceptor] { acceptor->start(); })) return kStopped;
  return address;
}

void LinkService::dial(DialRequest request, DialDone done) {
  KINTSUGI_ASSERT(done != nullptr);
  const auto dialer = std::make_shared<Dialer>(impl_->io, std::move(request), done);
  if (!impl_->post([dialer] { dialer->start(); })) done(kStopped);
}

Result<std::shared_ptr<Link>> LinkService::dial_and_wait(DialRequest request) {
  KINTSUGI_ASSERT_MSG(!impl_->on_io_thread(), "the io thread cannot wait for itself");
  const auto promise = std::make_shared<std::promise<Result<std::shared_ptr<Link>>>>();
  dial(std::move(request), [promise](Result<std::shared_ptr<Link>> result) { promise->set_value(std::move(result)); });
  return promise->get_future().get();
}

Result<std::shared_ptr<Link>> LinkService::adopt_unix(FileDescriptor socket, LinkPeer peer, LinkOptions options,
                                                      LinkCallbacks callbacks) {
  int domain = 0;
  socklen_t bytes = sizeof(domain);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0 || domain != AF_UNIX) {
    return Error{ErrorAction::fail_link, "descriptor " + std::to_string(socket.get()) + " is no Unix socket"};
  }
  const auto link = std::make_shared<StreamLink>(impl_->io, make_unix_carrier(impl_->io->context, std::move(socket)),
                                                 std::move(peer), options);
  const auto shared_callbacks = std::make_shared<LinkCallbacks>(std::move(callbacks));
  if (!impl_->post([link, shared_callbacks] { link->start(std::move(*shared_callbacks)); })) return kStopped;
  return std::shared_ptr<Link>(link);
}

StrangerCounts LinkService::strangers() const {
  const AtomicStrangerCounts& c = *impl_->counts;
  return {c.accepted, c.proven, c.dropped, c.refused, c.present};
}

// The io thread ends by itself once nothing is under way: every socket is closed now or after its linger time.
void LinkService::stop() {
  KINTSUGI_ASSERT_MSG(!impl_->on_io_thread(), "the io thread cannot wait for itself");
  const bool posted = impl_->post([io = impl_->io] {
    io->stopping = true;
    const std::vector<Stoppable*> live(io->live.begin(), io->live.end());
    // Stopping one may end another: ask again before each.
    for (Stoppable* each : live) {
      if (io->live.contains(each)) each->stop();
    }
  });
  if (!posted) return;
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->stopped = true;
  }
  impl_->work.reset();
  impl_->thread.join();
}

}  // namespace kintsugi::transport
