// Notices that this very process did not run for a while: it was stopped, its machine was suspended or starved. Whoever
// pinged it meanwhile has given it up, and the ends of their links, which it finds when it runs again, say nothing of them.
// Decisions about others wait for `check`, which does not return once a stall was seen.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "base/clock.hpp"
#include "base/event.hpp"

namespace kintsugi::actors {

class StallGuard {
 public:
  // `on_stall` gets the time that was slept through, on a thread of the guard or of whoever checks. It ends the process.
  StallGuard(Duration limit, std::function<void(Duration)> on_stall);
  ~StallGuard();
  StallGuard(const StallGuard&) = delete;
  StallGuard& operator=(const StallGuard&) = delete;

  // Any thread.
  void check();

 private:
  void watch();

  const Duration limit_;
  const std::function<void(Duration)> on_stall_;
  const SteadyClock clock_;
  std::atomic<std::int64_t> last_ns_;
  std::atomic<bool> stalled_ = false;
  Event end_;
  std::thread thread_;
};

}  // namespace kintsugi::actors
