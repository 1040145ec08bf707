// What one job is on one node: its rank processes, and the memory that outlives them (ring segment, arenas, committed
// state). Routes frames between the ranks and whoever owns this actor.
#pragma once

#include "actors/rank_supervisor.hpp"

namespace kintsugi::actors {

// --- to the node job ------------------------------------------------------------------------------------------------
struct JobFrame {  // prepare, resume, save, stop
  ControlMessage message;
};
// --- to its owner: frames for the supervisor, then the end ----------------------------------------------------------
struct UpFrame {
  std::shared_ptr<transport::Frame> frame;
};
struct NodeJobEnded {  // every rank process is reaped
  JobId job;
};

caf::actor spawn_node_job(caf::actor_system& system, NodeServices& services, const ControlMessage& start_ranks,
                          caf::actor owner);

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::JobFrame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::UpFrame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::NodeJobEnded)
