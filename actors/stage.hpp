// The compute side of a rank: a detached actor, so its mailbox has a thread that may block for a whole run. It owns what
// the rank holds and one trainer a generation; the rank's event-driven actor tells it what to do, and reaches into a
// running trainer through the switch. What the rank holds outlives an incarnation; the trainer does not, and the next one says
// that the work of its generation failed.
#pragma once

#include <caf/actor.hpp>

#include <memory>
#include <set>

#include "actors/supervised.hpp"
#include "actors/system.hpp"
#include "actors/trainer_switch.hpp"
#include "transport/ucx/ucx_context.hpp"

namespace kintsugi::actors {

struct RankIdentity {
  JobId job;
  RankId rank;
  Incarnation incarnation;
  int threads = 1;
  bool ucx_only = false;
  std::string interface;  // of tensors between nodes; empty: any
};

// --- rank -> stage --------------------------------------------------------------------------------------------------
struct FenceStage {
  Lineage lineage;
  Generation generation;
  Step known;  // the newest whose record the supervisor has
};
struct PrepareStage {
  ControlMessage message;  // schemas::Prepare
};
struct StageSegments {
  ControlMessage message;  // schemas::Segments, with its descriptors
};
struct TrainStage {
  Generation generation;
};
struct SaveStage {
  std::string staging;
};

// --- stage -> rank: frames for the node, ready to send --------------------------------------------------------------
struct StageFrame {
  std::shared_ptr<transport::Frame> frame;
};
struct StageFailed {
  Generation generation;
  Error error;
  std::set<RankId> lost_peers;
};

struct StageParts {
  RankIdentity identity;
  kernels::Device* device = nullptr;  // outlives the actor
  const Clock* clock = nullptr;       // likewise
  std::shared_ptr<TrainerSwitch> trainer_switch;
  std::shared_ptr<transport::ucx::UcxContext> ucx;
  const Clock* boot_clock = nullptr;  // likewise
  double peak_flops = 0;              // float32 FLOP/s of this rank's threads, measured in this run
};

// A child of the rank.
caf::actor spawn_stage(Place place, StageParts parts);

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::FenceStage)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::PrepareStage)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::StageSegments)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::TrainStage)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::SaveStage)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::StageFrame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::StageFailed)
