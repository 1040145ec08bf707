// The root actor of a node process: the link to the supervisor, whom the node serves, and one node job for each job.
#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <functional>
#include <string>

#include "actors/node.hpp"
#include "actors/rank_supervisor.hpp"

namespace kintsugi::actors {

struct NodeExit {
  int code = 0;
  std::string why;
};

struct NodeEnd {  // why the node must end
  NodeExit exit;
};
struct NodeParts {
  NodeServices& services;
  const NodeProcessOptions& options;
  Incarnation incarnation;
  std::function<void(NodeExit)> on_exit;
};

// `parts`: what they refer to outlives the actor.
caf::actor spawn_node_supervisor(caf::actor_system& system, const NodeParts& parts);

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::NodeEnd)
