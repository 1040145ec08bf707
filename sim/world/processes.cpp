#include "sim/world/processes.hpp"

#include <utility>

namespace kintsugi::sim {

Pid Processes::start(MachineId machine) {
  entries_.push_back({.machine = machine});
  return static_cast<Pid>(entries_.size() - 1);
}

void Processes::end(Pid pid) {
  Entry& entry = entries_.at(pid);
  KINTSUGI_ASSERT(pid != kWorld && entry.alive);
  entry.alive = false;
  entry.backlog.clear();
}

void Processes::go_on(Pid pid) {
  Entry& entry = entries_.at(pid);
  entry.stopped = false;
  for (Event& event : std::exchange(entry.backlog, {})) queue_.push(clock_.now(), std::move(event));
}

bool Processes::step() {
  if (queue_.empty()) return false;
  Event event = queue_.pop();
  Entry& entry = entries_.at(event.to);
  if (!entry.alive) return true;
  if (entry.stopped)
    entry.backlog.push_back(std::move(event));
  else
    event.act();
  return true;
}

}  // namespace kintsugi::sim
