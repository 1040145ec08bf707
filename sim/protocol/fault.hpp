// What is done to a simulated cluster, as data: a list of these and a shape are a whole run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "engine/control/job_machine.hpp"

namespace kintsugi::sim::protocol {

enum class FaultKind : std::uint8_t {
  kill_rank,
  stop_rank,        // for `span`; then it goes on, if it still lives
  slow_rank,        // for `span`
  hang_stage,       // its work stands still for three times `span`, its event side answers pings
  slow_starts,      // ranks that are started within three times `span` take so long to say hello
  kill_node,        // its process; its ranks die with it, its machine lives
  lose_node,        // the machine, with all on it, and nobody says so
  stop_node,        // its process, not its ranks, for `span`
  kill_supervisor,  // started again after `span`
  stop_supervisor,  // for `span`
  cut_to_node,      // frames of the supervisor do not get to a node, for `span`
  cut_from_node,
  delay_node,   // frames both ways take up to a second longer, for `span`
  cut_data,     // one way between two machines, for `span`
  break_data,   // a connection between two ranks
  repeat_data,  // a message of the data plane comes twice
  join,         // a machine with 1 + target % 3 slots
  drain,
  evict,
  pause,  // for `span`
};
constexpr std::uint8_t kFaultKinds = 20;
const char* to_string(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kill_rank;
  // When: at an instant; or, with `phase`, so long after the job's machine first enters that phase after `at`; or right
  // before event number `event`, between any two messages.
  Instant at;
  std::optional<JobPhase> phase;
  Duration after;
  std::uint64_t event = 0;
  std::uint64_t target = 0;  // of those that are there: this number modulo theirs
  Duration span;
};

// For people: one line.
std::string to_string(const Fault& fault);

}  // namespace kintsugi::sim::protocol
