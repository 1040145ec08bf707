// Whether this rank may contribute to a vote (DESIGN 7). A rank whose node has lost the supervisor trains on until the job's
// orphan limit; past it nobody knows whether a successor has given the job's state up, so the rank parks: it holds all it
// has, and waits before its next vote until its node has a supervisor again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace kintsugi {

struct Supervision {
  bool lost = false;
  Instant park_at;  // on the boot-time clock, which runs while the machine sleeps
};

// Thread safe.
class VoteGate {
 public:
  explicit VoteGate(const Clock& boot_clock) : clock_(boot_clock) {}

  void set(const Supervision& supervision);
  bool is_lost() const { return lost_; }
  // Blocks while parked. Error: of cancel().
  Result<void> pass();
  void cancel(const Error& why);

 private:
  const Clock& clock_;
  std::atomic<bool> lost_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  Supervision supervision_;
  std::optional<Error> cancelled_;
};

}  // namespace kintsugi
