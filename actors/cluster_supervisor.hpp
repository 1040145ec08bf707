// The root of the tree (DESIGN 5): owns the nodes, the clients and one job supervisor per job. Routes frames between them;
// every link event, pings included, passes through its mailbox. Links, members and jobs outlive an incarnation.
#pragma once

#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <functional>
#include <memory>
#include <string>

#include "actors/stall_guard.hpp"
#include "actors/supervised.hpp"
#include "base/clock.hpp"
#include "base/event.hpp"
#include "base/log.hpp"
#include "engine/telemetry/journal.hpp"

namespace kintsugi::actors {

struct ClusterParts {
  std::shared_ptr<Journal> journal;  // may be none
  bool embedded = false;
  std::string version;
  Logger logger;
  const Clock* clock = nullptr;  // outlives the actor
  Event done;
  StallGuard* stall_guard = nullptr;  // none: nothing is done about stalls; else outlives the actor
  ActorTree* tree = nullptr;          // outlives the actor
  // Its restarts did not help: this process is to be succeeded by one that knows only what is on the disk. Empty: it fails.
  std::function<void(const std::string& why)> on_spent;
};

struct StopCluster {
  std::string why;
};

// Error{tell_user}: a job in the journal is not one of this version.
Result<caf::actor> spawn_cluster_supervisor(caf::actor_system& system, ClusterParts parts);

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::StopCluster)
