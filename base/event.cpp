#include "base/event.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace kintsugi {

struct Event::State {
  std::mutex mutex;
  std::condition_variable done_changed;
  bool done = false;
  Result<void> outcome;
  std::vector<std::function<void(const Result<void>&)>> callbacks;

  void finish(Result<void> result) {
    std::vector<std::function<void(const Result<void>&)>> to_run;
    {
      const std::lock_guard lock(mutex);
      if (done) return;
      done = true;
      outcome = std::move(result);
      to_run.swap(callbacks);
    }
    done_changed.notify_all();
    for (const auto& callback : to_run) callback(outcome);
  }
};

Event::Event() : state_(std::make_shared<State>()) {}

Event Event::ready() {
  Event e;
  e.signal();
  return e;
}

void Event::signal() {
  state_->finish({});
}
void Event::fail(Error why) {
  state_->finish(std::move(why));
}

bool Event::is_done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

Result<void> Event::wait(Instant deadline) const {
  std::unique_lock lock(state_->mutex);
  const auto is_done = [this] { return state_->done; };
  if (deadline == kNoDeadline) {
    state_->done_changed.wait(lock, is_done);
  } else {
    const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline.ns)};
    if (!state_->done_changed.wait_until(lock, until, is_done)) {
      return Error{ErrorAction::retry, "deadline passed while waiting for an event"};
    }
  }
  return state_->outcome;
}

void Event::when_done(std::function<void(const Result<void>&)> callback) const {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->done) {
      state_->callbacks.push_back(std::move(callback));
      return;
    }
  }
  callback(state_->outcome);
}

}  // namespace kintsugi
