// Virtual time: what is to happen, ordered by (instant, sequence). Two runs that push the same events pop the same events,
// and a running hash of what was popped says so in one number.
//
// Nothing here knows what an event is: messages of a protocol and phases of a fleet are ordered alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/clock.hpp"

namespace kintsugi::sim {

class VirtualClock final : public Clock {
 public:
  Instant now() const override { return now_; }
  // Never backward.
  void advance_to(Instant t) {
    KINTSUGI_ASSERT(t >= now_);
    now_ = t;
  }

 private:
  Instant now_{};
};

// One word that depends on every bit of `word` and on all that was folded in before (the finalizer of Stafford's mix 13).
constexpr std::uint64_t fold(std::uint64_t hash, std::uint64_t word) {
  std::uint64_t z = hash + 0x9E3779B97F4A7C15u + word;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// `Event`: movable, with a free function `std::uint64_t fingerprint(const Event&)` beside it. The clock outlives the queue.
template <class Event>
class EventQueue {
 public:
  // `bound`: events waiting at once. A model that needs more has lost control of itself.
  EventQueue(VirtualClock& clock, std::size_t bound) : clock_(clock), bound_(bound) {}

  // Returns the sequence number, from 1: at equal instants the lower one comes first. Asserts that `at` has not passed and
  // that the bound is kept.
  std::uint64_t push(Instant at, Event event) {
    KINTSUGI_ASSERT_MSG(at >= clock_.now(), "an event in the past");
    KINTSUGI_ASSERT_MSG(heap_.size() < bound_, "more events are waiting than the model allows");
    heap_.push_back({at, ++sequence_, std::move(event)});
    std::push_heap(heap_.begin(), heap_.end(), later);
    most_ = std::max(most_, heap_.size());
    return sequence_;
  }

  // The next event; its instant is now. Asserts that there is one.
  Event pop() {
    KINTSUGI_ASSERT(!heap_.empty());
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Waiting next = std::move(heap_.back());
    heap_.pop_back();
    clock_.advance_to(next.at);
    hash_ = fold(fold(fold(hash_, static_cast<std::uint64_t>(next.at.ns)), next.sequence), fingerprint(next.event));
    ++popped_;
    return std::move(next.event);
  }

  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  std::size_t most() const { return most_; }  // that ever waited at once
  Instant next_at() const { return heap_.empty() ? kNoDeadline : heap_.front().at; }
  std::uint64_t popped() const { return popped_; }
  // Of every event popped so far, in order.
  std::uint64_t hash() const { return hash_; }

 private:
  struct Waiting {
    Instant at;
    std::uint64_t sequence = 0;
    Event event;
  };
  static bool later(const Waiting& a, const Waiting& b) { return a.at != b.at ? a.at > b.at : a.sequence > b.sequence; }

  VirtualClock& clock_;
  const std::size_t bound_;
  std::vector<Waiting> heap_;
  std::uint64_t sequence_ = 0, popped_ = 0, hash_ = 0;
  std::size_t most_ = 0;
};

}  // namespace kintsugi::sim
