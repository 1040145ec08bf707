// A rank process: its event side and its stage, as actors/rank.cpp and actors/stage.cpp have them. The stage does one thing at
// a time; the event side reaches into what it is doing.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "sim/protocol/context.hpp"
#include "sim/protocol/trainer.hpp"

namespace kintsugi::sim::protocol {

class Rank final : public LinkUser, public ParcelUser {
 public:
  Rank(const Context& context, RankId id, Pid pid);

  RankId id() const { return id_; }
  Pid pid() const { return pid_; }
  // The link to its node is up: it says hello.
  void begin(LinkId link);
  // Its process has ended.
  void die();
  // Its work stands still; a new letter waits, too.
  void hang() {
    hangs_ = true;
    waiting_.hang();
  }
  void let_go();

  void on_message(LinkId link, const Sent& message) override;
  void on_link_down(LinkId link, const std::string& why) override;
  void on_parcel(const Parcel& parcel) override;
  void on_released() override { waiting_.look(); }
  void on_peer_gone(RankId peer) override;

 private:
  struct FenceStage {
    Generation generation;
    Step known;
  };
  struct TrainStage {
    Generation generation;
  };
  using PrepareStage = Sent;  // say::Prepare
  struct SegmentsStage {
    Sent message;
  };
  using Letter = std::variant<FenceStage, PrepareStage, SegmentsStage, TrainStage>;

  void on_fence(const say::Fence& fence);
  void finish(const std::string& why);
  void pump();
  Task handle(Letter letter);
  Task prepare(const say::Prepare& preparation);
  Result<void> fence(const FenceStage& wanted);
  void ask_for_memory();
  Task take_segments(const say::Segments& segments);
  Task train(Generation generation);
  void tell_node(Sent message);
  const char* why_not(const say::Prepare& preparation) const;

  const Context& context_;
  const RankId id_;
  const Pid pid_;
  LinkId link_ = 0;
  bool ending_ = false;
  bool hangs_ = false;

  // --- what the switch knows ------------------------------------------------------------------------------------------
  Generation fenced_;

  // --- the stage ------------------------------------------------------------------------------------------------------
  std::deque<Letter> mailbox_;
  Waiting waiting_;
  Holdings held_;
  Generation generation_;
  std::shared_ptr<Carrier> carrier_;  // of this generation
  std::optional<say::Prepare> preparation_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<SumsLeft> left_;
  std::set<RankId> gone_;  // peers whose connections broke
  Task work_;              // last: goes before what it refers to
};

}  // namespace kintsugi::sim::protocol
