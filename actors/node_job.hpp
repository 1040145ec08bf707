// What one job is on one node: its rank processes, and the memory that outlives them (actors/job_memory.hpp). Routes
// frames between the ranks and whoever owns this actor, and answers fences with what gone ranks left behind.
#pragma once

#include "actors/rank_supervisor.hpp"

namespace kintsugi::actors {

// --- to the node job ------------------------------------------------------------------------------------------------
struct JobFrame {  // whatever the supervisor says to this job
  ControlMessage message;
};
// --- to its owner: frames for the supervisor, then the end ----------------------------------------------------------
struct UpFrame {
  std::shared_ptr<transport::Frame> frame;
};
struct NodeJobEnded {  // told to stop, and every rank process is reaped
  JobId job;
};

caf::actor spawn_node_job(caf::actor_system& system, NodeServices& services, JobId job, caf::actor owner);

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::JobFrame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::UpFrame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::NodeJobEnded)
