// What the link tests share: a recorder of callbacks, a listening supervisor, raw sockets, descriptor counts.
#pragma once

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "transport/link/link_service.hpp"

namespace kintsugi::transport {

constexpr Duration kPatience = seconds(10);  // no test waits for it when all is well

inline LinkOptions calm() {
  return {milliseconds(200), seconds(20)};
}

inline Frame frame_of(std::size_t words, int fill = 1) {
  Frame frame = kj::heapArray<capnp::word>(words);
  std::memset(frame.asBytes().begin(), fill, words * sizeof(capnp::word));
  return frame;
}
inline int fill_of(const Frame& frame) {
  return frame.asBytes()[0];
}

// Records what a link calls back; waits with a deadline.
class Inbox {
  template <class F>
  auto locked(F&& f) {
    const std::scoped_lock lock(mutex_);
    return f();
  }

 public:
  LinkCallbacks callbacks() {
    LinkCallbacks c;
    c.on_frame = [this](Link& link, Frame frame, std::vector<FileDescriptor> descriptors) {
      if (echo)
        EXPECT_TRUE(link.send(kj::heapArray<capnp::word>(frame), std::move(descriptors)).ok());
      else
        record([&] { descriptors_ = std::move(descriptors); });
      record([&] { frames_.push_back(std::move(frame)); });
    };
    c.on_pong = [this](Link&, Duration) { record([&] { ++pongs_; }); };
    c.on_drained = [this](Link&) { record([&] { ++drained_; }); };
    c.on_down = [this](Link&, const Error& why) { record([&] { downs_.push_back(why); }); };
    if (!answers_pings) c.on_ping = [](Link&, std::uint64_t) {};
    return c;
  }

  bool wait_frames(std::size_t n) {
    return wait([&] { return frames_.size() >= n; });
  }
  bool wait_pongs(std::size_t n) {
    return wait([&] { return pongs_ >= n; });
  }
  bool wait_drained() {
    return wait([&] { return drained_ > 0; });
  }
  bool wait_link() {
    return wait([&] { return link_ != nullptr; });
  }
  // Why it went down; an empty message when it did not.
  Error wait_down() {
    wait([&] { return !downs_.empty(); });
    const std::scoped_lock lock(mutex_);
    return downs_.empty() ? Error{ErrorAction::retry, ""} : downs_.front();
  }
  std::size_t downs() {
    return locked([&] { return downs_.size(); });
  }
  std::size_t frame_count() {
    return locked([&] { return frames_.size(); });
  }
  int fill(std::size_t i) {
    return locked([&] { return fill_of(frames_[i]); });
  }
  std::size_t words(std::size_t i) {
    return locked([&] { return frames_[i].size(); });
  }
  std::vector<FileDescriptor> take_descriptors() {
    return locked([&] { return std::move(descriptors_); });
  }
  std::shared_ptr<Link> link() {
    return locked([&] { return link_; });
  }
  void set_link(std::shared_ptr<Link> link) {
    record([&] { link_ = std::move(link); });
  }
  void forget_link() { set_link(nullptr); }

  bool echo = false;
  bool answers_pings = true;

 private:
  template <class F>
  void record(F&& f) {
    locked(f);
    changed_.notify_all();
  }
  template <class F>
  bool wait(F&& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::nanoseconds(kPatience.ns), condition);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Frame> frames_;
  std::vector<FileDescriptor> descriptors_;
  std::vector<Error> downs_;
  std::size_t pongs_ = 0;
  std::size_t drained_ = 0;
  std::shared_ptr<Link> link_;
};

// A supervisor on loopback whose links all go to one inbox.
struct Supervisor {
  explicit Supervisor(LinkOptions options = calm(), Duration greeting = seconds(2), std::size_t stranger_cap = 64,
                      Logger logger = {})
      : service(logger) {
    ListenRequest request{"127.0.0.1", 0, identity, {77}, options, nullptr, greeting, stranger_cap};
    request.on_link = [this](std::shared_ptr<Link> link) {
      inbox.set_link(std::move(link));
      return inbox.callbacks();
    };
    address = std::move(service.listen(std::move(request))).value();
  }
  ~Supervisor() {
    service.stop();
    inbox.forget_link();
  }

  DialRequest dial_request(Inbox& to, LinkOptions options = calm()) const {
    return {{address.text()}, identity.token, {LinkRole::node, {5}, "tester"}, kPatience, options, to.callbacks()};
  }

  Identity identity = make_identity();
  ListenAddress address;
  Inbox inbox;
  LinkService service;
};

// A plain TCP connection to a supervisor.
inline FileDescriptor raw_connection(std::uint16_t port) {
  FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(0, ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)));
  return fd;
}

// Blocks until the other side has closed, at most kPatience. Bytes that come first are dropped.
inline bool closed_by_peer(int fd) {
  const timeval patience{10, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  char bytes[512];
  ssize_t n = 0;
  while ((n = ::recv(fd, bytes, sizeof(bytes), 0)) > 0) {
  }
  return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

inline std::pair<FileDescriptor, FileDescriptor> unix_pair() {
  int ends[2];
  EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

inline std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

}  // namespace kintsugi::transport
