// What every simulated process reaches: the world around it and what is the same for all.
#pragma once

#include "sim/protocol/fabric.hpp"
#include "sim/protocol/messages.hpp"
#include "sim/protocol/shape.hpp"
#include "sim/protocol/watch.hpp"
#include "sim/world/links.hpp"

namespace kintsugi::sim::protocol {

class Rank;

struct Context {
  const Job& job;
  Processes& processes;
  Links& links;
  Fabric& fabric;
  Watch& watch;
  // Starts the process of a rank beside its node, which hears of its end.
  std::function<Rank&(RankId rank, MachineId machine)> start_rank;
  // The process ends by itself, or is killed by whoever may; `why`: what its parent reads.
  std::function<void(Pid pid, const std::string& why)> end_process;

  // For the watch: the supervisor lost a node's link, or has a generation resume.
  std::function<void(LinkId)> node_is_given_up;
  std::function<void(const Plan&)> generation_resumes;
  std::function<Duration()> process_start;  // until a new rank says hello

  void post(Pid to, Duration after, std::uint32_t kind, std::function<void()> act) const {
    processes.post(to, processes.now() + after * processes.slowness(to), kind, to, std::move(act));
  }
};

// Kinds of events beside those of links and fabric.
enum ProcessEvent : std::uint32_t { kTimer = 40, kExit, kStarted, kJournal, kFault, kCommand };

}  // namespace kintsugi::sim::protocol
