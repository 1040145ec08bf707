#include "actors/checkpoint_coordinator.hpp"

#include <variant>

#include "actors/save_folder.hpp"

namespace kintsugi::actors {

namespace {

struct HeldSave {
  caf::actor job;
  std::shared_ptr<std::atomic<bool>> cancelled;
  std::variant<std::monostate, BeginSave, CommitSave> in_hand;
  std::string begun;  // the staging folder; empty: none
  SaveFolder folder;
};

class CheckpointCoordinator final : public Body {
 public:
  CheckpointCoordinator(Life life, HeldSave& held) : Body(std::move(life)), held_(held) {}

  caf::behavior make_behavior() override {
    carry_out();
    return {
        [this](const BeginSave& m) { take(m); },
        [this](const CommitSave& m) { take(m); },
        [this](const EndSave&) { quit(); },
    };
  }

  void on_end() override {
    held_.folder.abandon();
    held_.job = nullptr;
  }

 private:
  template <class Order>
  void take(const Order& order) {
    held_.in_hand = order;
    carry_out();
  }

  void carry_out() {
    if (const auto* m = std::get_if<BeginSave>(&held_.in_hand)) {
      Result<std::string> staging = held_.begun;
      if (held_.begun.empty()) staging = held_.folder.begin(m->directory);
      if (staging) held_.begun = *staging;
      send(held_.job, SaveBegun{std::move(staging)});
    } else if (const auto* commit = std::get_if<CommitSave>(&held_.in_hand)) {
      SaveDone done{held_.folder.commit(commit->manifest, commit->job, *held_.cancelled)};
      if (done.outcome) held_.begun.clear();
      send(held_.job, std::move(done));
    }
    held_.in_hand = std::monostate{};
  }

  HeldSave& held_;
};

}  // namespace

caf::actor spawn_checkpoint_coordinator(Place place, std::shared_ptr<std::atomic<bool>> cancelled) {
  auto held = std::make_shared<HeldSave>();
  held->job = place.parent;
  held->cancelled = std::move(cancelled);
  return spawn_detached(std::move(place), bodies_of<CheckpointCoordinator>(std::move(held)));
}

}  // namespace kintsugi::actors
