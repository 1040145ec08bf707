#include "actors/process.hpp"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <future>

extern char** environ;

namespace kintsugi::actors {

namespace {

constexpr int kFirstChildDescriptor = 3;
constexpr char kSelf[] = "/proc/self/exe";

Error system_error(std::string_view what) {
  return {ErrorAction::tell_user, fmt::format("{}: {}", what, strerror(errno))};
}

// Places `descriptors` at 3, 4, ... of the child. They are first moved out of the way of their targets.
class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  Result<void> place(const std::vector<int>& descriptors) {
    const int first_free = kFirstChildDescriptor + static_cast<int>(descriptors.size());
    for (const int fd : descriptors) {
      copies_.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, first_free));
      if (!copies_.back().valid()) return system_error("cannot copy a descriptor for a child process");
    }
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      posix_spawn_file_actions_adddup2(&actions_, copies_[i].get(), kFirstChildDescriptor + static_cast<int>(i));
    }
    return {};
  }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
  std::vector<FileDescriptor> copies_;
};

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

std::string ProcessEnd::text() const {
  if (!signalled) return fmt::format("exited with code {}", status);
  return fmt::format("was killed by signal {} ({})", status, strsignal(status));
}

ProcessWatcher::ProcessWatcher()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  KINTSUGI_ASSERT_MSG(epoll_.valid() && wake_.valid(), "out of descriptors");
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  thread_ = std::thread([this] { loop(); });
}

ProcessWatcher::~ProcessWatcher() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

Result<pid_t> ProcessWatcher::spawn(SpawnRequest request, std::function<void(const ProcessEnd&)> on_end) {
  std::promise<Result<pid_t>> promise;
  std::future<Result<pid_t>> spawned = promise.get_future();
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back([&] { promise.set_value(spawn_here(request, std::move(on_end))); });
  }
  ::eventfd_write(wake_.get(), 1);
  return spawned.get();
}

Result<pid_t> ProcessWatcher::spawn_here(const SpawnRequest& request, std::function<void(const ProcessEnd&)> on_end) {
  FileActions actions;
  KINTSUGI_TRY(actions.place(request.descriptors));
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  std::vector<std::string> arguments = request.arguments;
  std::vector<std::string> environment = request.environment;
  for (char** e = environ; *e != nullptr; ++e) environment.emplace_back(*e);
  pid_t pid = 0;
  const int failed =
      ::posix_spawn(&pid, kSelf, actions.get(), &attributes, pointers(arguments).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    errno = failed;
    return system_error("cannot start a process of this binary");
  }
  FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  KINTSUGI_ASSERT_MSG(pidfd.valid(), "pidfd_open failed for a child that nobody else can reap");
  epoll_event event{.events = EPOLLIN, .data = {.u64 = static_cast<std::uint64_t>(pid)}};
  const std::lock_guard lock(mutex_);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, pidfd.get(), &event);
  children_.emplace(pid, Child{std::move(pidfd), std::move(on_end)});
  return pid;
}

void ProcessWatcher::signal(pid_t pid, int number) {
  const std::lock_guard lock(mutex_);
  const auto child = children_.find(pid);
  if (child != children_.end()) ::syscall(SYS_pidfd_send_signal, child->second.pidfd.get(), number, nullptr, 0);
}

void ProcessWatcher::run_posted() {
  eventfd_t count = 0;
  ::eventfd_read(wake_.get(), &count);
  std::vector<std::function<void()>> posted;
  {
    const std::lock_guard lock(mutex_);
    posted.swap(posted_);
  }
  for (const auto& work : posted) work();
}

void ProcessWatcher::reap(pid_t pid) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG) != 0 || info.si_pid != pid) return;
  Child child;
  {
    const std::lock_guard lock(mutex_);
    const auto at = children_.find(pid);
    child = std::move(at->second);
    children_.erase(at);
  }
  child.on_end({pid, info.si_code != CLD_EXITED, info.si_status});
}

void ProcessWatcher::loop() {
  for (;;) {
    epoll_event event{};
    const int n = ::epoll_wait(epoll_.get(), &event, 1, -1);
    if (n < 0 && errno == EINTR) continue;
    KINTSUGI_ASSERT(n == 1);
    if (event.data.u64 != 0) {
      reap(static_cast<pid_t>(event.data.u64));
      continue;
    }
    run_posted();
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
  }
}

}  // namespace kintsugi::actors
