// How the event side of a rank reaches into a trainer that runs on the thread of the stage.
#pragma once

#include <mutex>
#include <optional>

#include "engine/pipeline/trainer.hpp"

namespace kintsugi::actors {

// Thread safe. Whoever comes first, the trainer or the fence, sees the other.
class TrainerSwitch {
 public:
  // The stage: from now on `trainer`, of `generation`, is the one to reach. nullptr: before a trainer goes.
  void arm(Trainer* trainer, Generation generation);
  // Cancels trainers older than `generation`, those still to be armed, too.
  void fence(Generation generation, const Error& why);
  // Cancels every trainer from now on: the process ends.
  void end(const Error& why);
  // Cancels the trainer that runs now, none to come: its stage has a letter to look at.
  void interrupt(const Error& why);
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

}  // namespace kintsugi::actors
