#include "actors/checkpoint_coordinator.hpp"

#include <caf/event_based_actor.hpp>

#include "actors/save_folder.hpp"

namespace kintsugi::actors {

namespace {

class CheckpointCoordinator final : public caf::event_based_actor {
 public:
  CheckpointCoordinator(caf::actor_config& config, caf::actor job, std::shared_ptr<std::atomic<bool>> cancelled)
      : caf::event_based_actor(config), job_(std::move(job)), cancelled_(std::move(cancelled)) {}

  const char* name() const override { return "checkpoint coordinator"; }

  caf::behavior make_behavior() override {
    return {
        [this](const BeginSave& m) { send(job_, SaveBegun{folder_.begin(m.directory)}); },
        [this](const CommitSave& m) { send(job_, SaveDone{folder_.commit(m.manifest, m.job, *cancelled_)}); },
        [this](const EndSave&) { quit(); },
    };
  }

  void on_exit() override {
    folder_.abandon();
    job_ = nullptr;
  }

 private:
  caf::actor job_;
  std::shared_ptr<std::atomic<bool>> cancelled_;
  SaveFolder folder_;
};

}  // namespace

caf::actor spawn_checkpoint_coordinator(caf::actor_system& system, caf::actor job,
                                        std::shared_ptr<std::atomic<bool>> cancelled) {
  return system.spawn<CheckpointCoordinator, caf::detached>(std::move(job), std::move(cancelled));
}

}  // namespace kintsugi::actors
