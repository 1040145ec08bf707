// Everything that a command waits for, in one queue: frames and the end of its link, the ends of child processes,
// signals.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>

#include "actors/control_message.hpp"
#include "actors/process.hpp"
#include "base/clock.hpp"

namespace kintsugi::cli {

struct Connected {
  std::shared_ptr<transport::Link> link;
};
struct Disconnected {  // or never connected
  Error why;
};
struct ChildEnded {
  std::string name;
  actors::ProcessEnd end;
};
struct ClusterEnded {};
struct Interrupted {
  int signal = 0;
};
using InboxItem = std::variant<Connected, actors::ControlMessage, Disconnected, ChildEnded, ClusterEnded, Interrupted>;

class Inbox {
 public:
  // From here on SIGINT, SIGTERM and SIGHUP of this process are items: make it before any thread starts.
  Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  void push(InboxItem item);  // any thread
  // The next item; nothing once `deadline` has passed. One thread. A signal comes before all else.
  std::optional<InboxItem> next(Instant deadline);

 private:
  std::optional<InboxItem> take();

  FileDescriptor signals_;
  FileDescriptor wake_;
  SteadyClock clock_;
  std::mutex mutex_;
  std::deque<InboxItem> items_;
};

}  // namespace kintsugi::cli
