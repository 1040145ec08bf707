// Child processes of a node: spawned, watched by pidfd, always reaped. The end of a process is a fact here, at once: an
// unreaped zombie looks alive to everybody else (DEPENDENCIES, "UCX").
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/file.hpp"
#include "base/result.hpp"

namespace kintsugi::actors {

struct SpawnRequest {
  std::vector<std::string> arguments;  // argv, this binary's name first
  // Child descriptor numbers, 3 and up, in this order; the rest is closed.
  std::vector<int> descriptors;
  std::vector<std::string> environment;  // "NAME=value", added to this process's own
};

struct ProcessEnd {
  pid_t pid = 0;
  bool signalled = false;
  int status = 0;            // exit code or signal
  std::string text() const;  // "exited with code 1", "was killed by signal 9 (Killed)"
};

// Thread safe.
class ProcessWatcher {
 public:
  ProcessWatcher();
  ~ProcessWatcher();  // stops watching; kills nobody
  ProcessWatcher(const ProcessWatcher&) = delete;
  ProcessWatcher& operator=(const ProcessWatcher&) = delete;

  // Starts this very binary again, in a process group of its own. `on_end` runs once, on the watcher's thread, after
  // the process was reaped; it must not block. The child's parent-death signal is its own to set, and refers to this
  // thread's process: children are spawned by the watcher's thread, which lives as long as the watcher.
  Result<pid_t> spawn(SpawnRequest request, std::function<void(const ProcessEnd&)> on_end);
  // To a process spawned here and not yet reaped; nothing otherwise, so never to a reused number.
  void signal(pid_t pid, int number);

 private:
  struct Child {
    FileDescriptor pidfd;
    std::function<void(const ProcessEnd&)> on_end;
  };

  void loop();
  void run_posted();
  Result<pid_t> spawn_here(const SpawnRequest& request, std::function<void(const ProcessEnd&)> on_end);
  void reap(pid_t pid);

  FileDescriptor epoll_;
  FileDescriptor wake_;
  std::mutex mutex_;
  std::map<pid_t, Child> children_;
  std::vector<std::function<void()>> posted_;  // to the watcher's thread
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kintsugi::actors
