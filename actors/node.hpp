// A node process, `kintsugi join`: dials the supervisor, offers its slots, and runs the rank processes of jobs. It outlives
// a supervisor that is lost: its jobs train on while it dials again (engine/control/allegiance.hpp).
#pragma once

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "transport/link/join_token.hpp"

namespace kintsugi::actors {

struct NodeProcessOptions {
  std::vector<std::string> addresses;  // HOST:PORT, tried in order
  transport::JoinToken token;
  std::uint32_t slots = 1;          // rank processes at once
  std::vector<std::string> labels;  // "rack=r1"
  std::string interface;            // trusted network interface for tensors between nodes; empty: any
  Duration join_deadline = seconds(30);
  std::string version;
  bool embedded = false;  // ends with its supervisor, and says little
  Logger logger;
};

// Until a supervisor lets the node go, none was to be found for the orphan limit, or SIGINT or SIGTERM. Prints what a person
// must know on standard error. Returns the exit code: 0 let go, 1 the supervisor was lost, 3 could not join, 130
// interrupted. No rank process outlives it.
int run_node_process(const NodeProcessOptions& options);

}  // namespace kintsugi::actors
