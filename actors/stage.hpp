// The compute side of a rank: a detached actor, so its mailbox has a thread that may block for a whole run. It owns the
// blueprint and the trainer; the rank's event-driven actor tells it what to do and may cancel it at any instant.
#pragma once

#include <caf/actor.hpp>
#include <caf/event_based_actor.hpp>

#include <atomic>
#include <memory>
#include <mutex>

#include "actors/system.hpp"
#include "engine/pipeline/trainer.hpp"
#include "transport/shm/shared_memory.hpp"
#include "transport/ucx/ucx_carrier.hpp"

namespace kintsugi::actors {

struct RankIdentity {
  JobId job;
  RankId rank;
  Incarnation incarnation;
  int threads = 1;
  bool ucx_only = false;
  std::string interface;  // of tensors between nodes; empty: any
  transport::Fence fence;
};

// Reaches into the stage from other threads: whoever comes first, the trainer or the cancellation, sees the other.
class CancelSwitch {
 public:
  void arm(Trainer* trainer);  // nullptr: before the trainer goes
  void cancel(const Error& why);
  std::optional<Error> reason() const;

 private:
  mutable std::mutex mutex_;
  Trainer* trainer_ = nullptr;
  std::optional<Error> reason_;
};

// --- rank -> stage --------------------------------------------------------------------------------------------------
struct PrepareStage {
  ControlMessage message;  // schemas::Prepare
};
struct StageSegments {
  ControlMessage message;  // schemas::Segments, with its descriptors
};
struct TrainStage {};
struct SaveStage {
  std::string staging;
};

// --- stage -> rank: frames for the node, ready to send --------------------------------------------------------------
struct StageFrame {
  std::shared_ptr<transport::Frame> frame;
};
struct StageFailed {
  Error error;
};

struct StageParts {
  RankIdentity identity;
  kernels::Device* device = nullptr;  // outlives the actor
  const Clock* clock = nullptr;       // likewise
  std::shared_ptr<CancelSwitch> cancel;
  std::unique_ptr<transport::ucx::UcxCarrier> ucx;  // of the generation to be prepared
  std::function<double()> measure_peak;             // float32 FLOP/s of this rank's threads, now
  caf::actor rank;
};

caf::actor spawn_stage(caf::actor_system& system, StageParts parts);

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::PrepareStage)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::StageSegments)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::TrainStage)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::SaveStage)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::StageFrame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::StageFailed)
