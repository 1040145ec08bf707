// The compute side of a rank: a detached actor, so its mailbox has a thread that may block for a whole run. It owns what
// the rank holds and one trainer a generation; the rank's event-driven actor tells it what to do, and reaches into a
// running trainer through the switch.
#pragma once

#include <caf/actor.hpp>
#include <caf/event_based_actor.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>

#include "actors/system.hpp"
#include "engine/pipeline/trainer.hpp"
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

// Reaches into the stage from other threads: whoever comes first, the trainer or the fence, sees the other.
class TrainerSwitch {
 public:
  // The stage: from now on `trainer`, of `generation`, is the one to reach. nullptr: before a trainer goes.
  void arm(Trainer* trainer, Generation generation);
  // Cancels trainers older than `generation`, those still to be armed, too.
  void fence(Generation generation, const Error& why);
  // Cancels every trainer from now on: the process ends.
  void end(const Error& why);
  // Has the running trainer vote for a change to `generation`.
  void intend(Generation generation);
  // Of this rank's node, from now on and for trainers still to be armed.
  void set_supervision(const Supervision& supervision);
  std::optional<Error> ended() const;

 private:
  mutable std::mutex mutex_;
  Trainer* trainer_ = nullptr;
  Generation of_trainer_;
  Generation fenced_;
  std::optional<Error> fence_reason_, end_reason_;
  Supervision supervision_;
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
  caf::actor rank;
};

caf::actor spawn_stage(caf::actor_system& system, StageParts parts);

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::FenceStage)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::PrepareStage)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::StageSegments)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::TrainStage)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::SaveStage)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::StageFrame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::StageFailed)
