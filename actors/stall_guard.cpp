#include "actors/stall_guard.hpp"

#include <utility>

namespace kintsugi::actors {

namespace {
constexpr Duration kTick = milliseconds(100);
}

StallGuard::StallGuard(Duration limit, std::function<void(Duration)> on_stall)
    : limit_(limit), on_stall_(std::move(on_stall)), last_ns_(clock_.now().ns), thread_([this] { watch(); }) {}

StallGuard::~StallGuard() {
  end_.signal();
  thread_.join();
}

void StallGuard::check() {
  const Duration slept{clock_.now().ns - last_ns_.load()};
  if (slept <= limit_ && !stalled_.load()) return;
  if (!stalled_.exchange(true)) on_stall_(slept);
  static_cast<void>(Event().wait(kNoDeadline).ok());  // another thread ends the process; this one decides nothing
}

void StallGuard::watch() {
  while (!end_.is_done()) {
    static_cast<void>(end_.wait(clock_.now() + kTick).ok());
    // Read first: what is slept through from here on shows at the next tick.
    const Instant now = clock_.now();
    check();
    last_ns_.store(now.ns);
  }
}

}  // namespace kintsugi::actors
