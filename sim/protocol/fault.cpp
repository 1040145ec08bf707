#include "sim/protocol/fault.hpp"

#include <fmt/format.h>

namespace kintsugi::sim::protocol {

const char* to_string(FaultKind kind) {
  switch (kind) {
    case FaultKind::kill_rank: return "kill a rank";
    case FaultKind::stop_rank: return "stop a rank";
    case FaultKind::slow_rank: return "slow a rank down";
    case FaultKind::hang_stage: return "hang a rank's work";
    case FaultKind::slow_starts: return "ranks start slowly";
    case FaultKind::kill_node: return "kill a node's process";
    case FaultKind::lose_node: return "lose a machine";
    case FaultKind::stop_node: return "stop a node's process";
    case FaultKind::kill_supervisor: return "kill the supervisor";
    case FaultKind::stop_supervisor: return "stop the supervisor";
    case FaultKind::cut_to_node: return "cut the link to a node";
    case FaultKind::cut_from_node: return "cut the link from a node";
    case FaultKind::delay_node: return "delay the link of a node";
    case FaultKind::cut_data: return "cut data between machines";
    case FaultKind::break_data: return "break a data connection";
    case FaultKind::repeat_data: return "repeat a data message";
    case FaultKind::join: return "a node joins";
    case FaultKind::drain: return "drain a node";
    case FaultKind::evict: return "evict a rank";
    case FaultKind::pause: return "pause";
  }
  KINTSUGI_UNREACHABLE();
}

std::string to_string(const Fault& f) {
  std::string when = fmt::format("at {:.6f} s", Duration{f.at.ns}.seconds());
  if (f.phase) {
    when = fmt::format("{:.6f} s into the next '{}' after {:.3f} s", f.after.seconds(), kintsugi::to_string(*f.phase),
                       Duration{f.at.ns}.seconds());
  }
  if (f.event != 0) when = fmt::format("before event {}", f.event);
  return fmt::format("{} {}: target {}, for {:.3f} s", when, to_string(f.kind), f.target, f.span.seconds());
}

}  // namespace kintsugi::sim::protocol
