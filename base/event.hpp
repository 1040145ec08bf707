// A one-shot event: signalled once, with success or an error, by a stream, a transport or a host thread, and waited
// for by any of them. This is the one thing by which kernels, transports and the host order their work.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace kintsugi {

// Thread safe. Copies share the state.
class Event {
 public:
  Event();
  // Already signalled.
  static Event ready();

  // The first of signal and fail wins; later calls change nothing.
  void signal();
  void fail(Error why);

  bool is_done() const;
  // Blocks the calling thread. Error{retry} when `deadline` (SteadyClock) passes first.
  Result<void> wait(Instant deadline) const;
  // Runs `callback` at once if the event is done, else on the thread that ends it. Must not block.
  void when_done(std::function<void(const Result<void>&)> callback) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kintsugi
