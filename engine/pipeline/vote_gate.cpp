#include "engine/pipeline/vote_gate.hpp"

namespace kintsugi {

void VoteGate::set(const Supervision& supervision) {
  const std::lock_guard lock(mutex_);
  supervision_ = supervision;
  lost_ = supervision.lost;
  changed_.notify_all();
}

Result<void> VoteGate::pass() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return cancelled_ || !supervision_.lost || clock_.now() < supervision_.park_at; });
  if (cancelled_) return *cancelled_;
  return {};
}

void VoteGate::cancel(const Error& why) {
  const std::lock_guard lock(mutex_);
  if (!cancelled_) cancelled_ = why;
  changed_.notify_all();
}

}  // namespace kintsugi
