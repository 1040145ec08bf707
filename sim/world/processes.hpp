// Processes on machines, and what happens to them: each has a number that is never given again, hears of events in order, and
// may be stopped, slowed down or ended at any instant.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/world/draws.hpp"
#include "sim/world/event_queue.hpp"

namespace kintsugi::sim {

using Pid = std::uint32_t;
using MachineId = std::uint32_t;

// What runs the world itself: it is never stopped and never ends.
constexpr Pid kWorld = 0;

struct Event {
  Pid to = kWorld;
  std::uint32_t kind = 0;  // for the hash and for traces: what it is
  std::uint64_t tag = 0;   // likewise: of which one
  std::function<void()> act;
};
inline std::uint64_t fingerprint(const Event& e) {
  return fold(fold(e.to, e.kind), e.tag);
}

class Processes {
 public:
  Processes(VirtualClock& clock, std::size_t bound) : clock_(clock), queue_(clock, bound) { start(0); }

  Pid start(MachineId machine);
  // Nothing reaches it any more.
  void end(Pid pid);
  // What reaches it waits until it goes on.
  void stop(Pid pid) { entries_.at(pid).stopped = true; }
  void go_on(Pid pid);
  // Whatever it does takes `times` as long.
  void slow_down(Pid pid, std::uint32_t times) { entries_.at(pid).slowness = times; }

  bool is_alive(Pid pid) const { return entries_.at(pid).alive; }
  bool is_stopped(Pid pid) const { return entries_.at(pid).stopped; }
  std::int64_t slowness(Pid pid) const { return entries_.at(pid).slowness; }
  MachineId machine_of(Pid pid) const { return entries_.at(pid).machine; }
  std::uint32_t count() const { return static_cast<std::uint32_t>(entries_.size()); }

  void post(Pid to, Instant at, std::uint32_t kind, std::uint64_t tag, std::function<void()> act) {
    queue_.push(at, {to, kind, tag, std::move(act)});
  }
  // One event. False: there is none.
  bool step();

  Instant now() const { return clock_.now(); }
  const EventQueue<Event>& queue() const { return queue_; }

 private:
  struct Entry {
    MachineId machine = 0;
    bool alive = true, stopped = false;
    std::uint32_t slowness = 1;
    std::vector<Event> backlog;
  };

  VirtualClock& clock_;
  EventQueue<Event> queue_;
  std::vector<Entry> entries_;  // by Pid
};

}  // namespace kintsugi::sim
