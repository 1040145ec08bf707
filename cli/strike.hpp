// A fault on a live cluster: what `inject` does once and `chaos` does by a scenario.
#pragma once

#include <optional>
#include <string>

#include "cli/client.hpp"

namespace kintsugi::cli {

struct Target {
  std::optional<std::uint32_t> node, rank, shard;  // none: the supervisor
  std::string actor;                               // as `status` names it; empty: a process is meant
};
// "rank:N", "node:N", "shard:S@rank:R", "actor:NAME", "supervisor"; empty for anything else.
std::optional<Target> parse_target(const std::string& text);

// Error{tell_user}: no such fault, or no target of it. Error{refuse}: the cluster has no such target, or did not answer; that
// a supervisor which is told to die does not is no error.
Result<void> strike(const std::string& fault, const std::string& target, const std::string& state_directory,
                    const Logger& logger);

}  // namespace kintsugi::cli
