// What one job is on one node: its rank processes, and the memory that outlives them (actors/job_memory.hpp). Routes
// frames between the ranks and whoever owns this actor, and answers fences with what gone ranks left behind. All of that
// outlives an incarnation: what crashes here loses the letter in hand, and the supervisor is told that the generation failed.
#pragma once

#include "actors/rank_supervisor.hpp"
#include "base/clock.hpp"
#include "engine/pipeline/vote_gate.hpp"

namespace kintsugi::actors {

// --- to the node job ------------------------------------------------------------------------------------------------
struct JobFrame {  // whatever the supervisor says to this job
  ControlMessage message;
};
struct SupervisionChanged {  // of the node; for every rank here
  Supervision supervision;
};
struct Restate {};  // a new supervisor listens: say all that it must know, then go on as before
// --- to its owner: frames for the supervisor, then the end ----------------------------------------------------------
struct UpFrame {
  std::shared_ptr<transport::Frame> frame;
};
struct OrphanLimit {  // of the job, once it is known
  JobId job;
  Duration limit;
};
struct NodeJobEnded {  // told to stop, and every rank process is reaped
  JobId job;
};

caf::actor spawn_node_job(Place place, NodeServices& services, JobId job);

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::JobFrame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::SupervisionChanged)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::Restate)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::UpFrame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::OrphanLimit)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::NodeJobEnded)
