// Faults on purpose (`kintsugi inject`): what each does to a process.
#pragma once

#include <charconv>
#include <csignal>
#include <optional>
#include <string>
#include <string_view>

#include "schemas/control.capnp.h"

namespace kintsugi::actors {

// The signal that is the fault; 0: it is another kind.
inline int signal_of(schemas::Inject::Fault fault) {
  switch (fault) {
    case schemas::Inject::Fault::KILL: return SIGKILL;
    case schemas::Inject::Fault::STOP: return SIGSTOP;
    case schemas::Inject::Fault::CONTINUE: return SIGCONT;
    case schemas::Inject::Fault::CORRUPT:
    case schemas::Inject::Fault::CRASH: return 0;
  }
  return 0;  // of a newer client
}

// An actor of the cluster: what it is, and of which node or rank. In its own process a node's or a rank's is called `kind`.
struct ActorName {
  std::string kind;                     // "stage"
  std::optional<std::uint32_t> number;  // of "stage@2"; none: it is in the supervisor's process
};
inline ActorName parse_actor(std::string_view text) {
  const std::size_t at = text.find('@');
  ActorName name{std::string(text.substr(0, at)), std::nullopt};
  if (at == std::string_view::npos) return name;
  std::uint32_t number = 0;
  const auto [end, failed] = std::from_chars(text.data() + at + 1, text.data() + text.size(), number);
  if (failed == std::errc() && end == text.data() + text.size()) name.number = number;
  return name;
}
inline bool is_in_rank_process(const ActorName& name) {
  return name.kind == "rank" || name.kind == "stage";
}

}  // namespace kintsugi::actors
