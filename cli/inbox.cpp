#include "cli/inbox.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace kintsugi::cli {

Inbox::Inbox() {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, number);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  wake_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  KINTSUGI_ASSERT_MSG(signals_.valid() && wake_.valid(), "out of descriptors");
}

void Inbox::push(InboxItem item) {
  {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
  }
  ::eventfd_write(wake_.get(), 1);
}

std::optional<InboxItem> Inbox::take() {
  signalfd_siginfo info{};
  if (::read(signals_.get(), &info, sizeof info) == sizeof info) return Interrupted{static_cast<int>(info.ssi_signo)};
  const std::lock_guard lock(mutex_);
  if (items_.empty()) return std::nullopt;
  InboxItem item = std::move(items_.front());
  items_.pop_front();
  return item;
}

std::optional<InboxItem> Inbox::next(Instant deadline) {
  for (;;) {
    if (std::optional<InboxItem> item = take()) return item;
    int timeout_ms = -1;
    if (deadline != kNoDeadline) {
      const Duration left = deadline - clock_.now();
      if (left.ns <= 0) return std::nullopt;
      timeout_ms = static_cast<int>(std::min<std::int64_t>(left.ms() + 1, 60'000));
    }
    pollfd fds[2] = {{signals_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    ::poll(fds, 2, timeout_ms);
    eventfd_t ignored = 0;
    ::eventfd_read(wake_.get(), &ignored);
  }
}

}  // namespace kintsugi::cli
