// The supervisor of one job: a thin shell around JobMachine (DESIGN 5). Frames of nodes become events of the machine;
// its effects become frames for nodes and for the client that follows. The cluster supervisor owns all links and
// routes. The next incarnation begins as a restarted supervisor does (engine/control/job_adoption.cpp): with what was written
// down, and with what nodes restate. The ranks train on meanwhile.
#pragma once

#include <caf/actor.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/control_message.hpp"
#include "actors/job_admission.hpp"
#include "actors/job_view.hpp"
#include "actors/supervised.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "engine/control/job_events.hpp"
#include "engine/telemetry/journal_state.hpp"

namespace kintsugi::actors {

// --- cluster supervisor -> job supervisor ---------------------------------------------------------------------------
struct NodeOffered {  // its slots are leased to this job
  NodeId node;
  std::string name;
  std::uint32_t slots = 0;
  std::uint32_t cores = 0;
  std::string rack;            // label; empty: none
  bool runs_this_job = false;  // since a former supervisor
};
struct NodeGone {
  NodeId node;
  std::string why;
};
struct NodeFrame {
  NodeId node;
  ControlMessage message;
};
struct DrainNodeOfJob {
  NodeId node;
};
struct EvictRankOfJob {
  RankId rank;
};
struct PauseJob {};
struct ResumeJob {};
struct CancelJob {
  std::string why;
  int exit_code = 130;
};

// --- job supervisor -> cluster supervisor ---------------------------------------------------------------------------
struct ToNode {
  NodeId node;
  std::shared_ptr<transport::Frame> frame;
};
struct ToFollower {
  JobId job;
  std::shared_ptr<transport::Frame> frame;
};
struct NodeDrained {  // nothing of the job is left on it
  NodeId node;
};
struct JobEnded {
  JobId job;
  int exit_code = 0;
  std::string message;
  std::shared_ptr<transport::Frame> told;  // schemas::Ended, for whoever follows, now or late
};

struct JobParts {
  JobId job;
  std::uint32_t epoch = 1;  // of the supervisor
  AdmittedJob admitted;
  std::optional<Adoption> adoption;  // a former supervisor ran it
  std::optional<RestartJob> before;  // likewise: as the journal has it
  std::string version;
  const Clock* clock = nullptr;  // outlives the actor
  Logger logger;
  caf::actor journal;  // the writer
};

// A child of the cluster supervisor.
caf::actor spawn_job_supervisor(Place place, JobParts parts);

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::NodeOffered)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::NodeGone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::NodeFrame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::DrainNodeOfJob)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::EvictRankOfJob)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::NodeDrained)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::PauseJob)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::ResumeJob)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::CancelJob)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::ToNode)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::ToFollower)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::JobView)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::JobEnded)
