// What one rank does in one generation, as engine/pipeline/trainer.cpp and executor.cpp do it, over the very instruction lists
// that production compiles; tensors are marks, and every wait is an event.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/pipeline/program.hpp"
#include "sim/protocol/carrier.hpp"
#include "sim/protocol/memory.hpp"
#include "sim/protocol/oracle.hpp"
#include "sim/protocol/watch.hpp"
#include "sim/world/task.hpp"

namespace kintsugi::sim::protocol {

// As engine/pipeline/rank_state.hpp: what a rank holds beyond a generation.
struct Holdings {
  std::map<ShardId, std::shared_ptr<CopyMemory>> copies;
  std::vector<DecisionRecord> records;
  std::shared_ptr<Board> board;

  void hold(const DecisionRecord& record);
  std::optional<DecisionRecord> newest() const;
};

struct SumsLeft {
  Step step;
  std::vector<LaneId> begun;
  std::map<LayerSum, Sum> sums;
  std::vector<double> losses;
};

class Trainer {
 public:
  struct Parts {
    const Job& job;
    RankId self;
    Plan plan;
    std::optional<Transition> transition;
    std::shared_ptr<Carrier> carrier;
    Holdings& held;
    Waiting& waiting;
    Fabric& fabric;
    Watch& watch;
    std::optional<SumsLeft> left;  // of the trainer before
  };
  explicit Trainer(Parts parts);

  Task initialise();
  Task take_over();
  // `on_step` at the root, after each decision.
  Task run(Step last, std::function<void(const DecisionRecord&)> on_step);
  Task complete(DecisionRecord record);
  void intend(Generation next) { intent_ = next; }
  void cancel(const Error& why) { parts_.carrier->fail(why); }

  std::vector<CopyReport> inventory() const;
  SumReport sums() const;
  SumsLeft salvage(const std::optional<Transition>& next) const;

  Generation generation() const { return parts_.plan.generation; }
  const Plan& plan() const { return parts_.plan; }
  Step step() const { return state_.step; }
  Digest final_digest() const { return final_digest_; }
  bool ended_by_vote() const { return decided_ && decided_->next_generation; }
  Carrier& carrier() { return *parts_.carrier; }

 private:
  enum class VotePhase : std::uint8_t { step, closing };
  struct Reduced {
    Mark mark = 0;
    Step step;
  };
  struct Place {  // of activations and saved inputs of a microbatch
    std::map<std::uint32_t, Mark> tokens, outputs;
    std::map<std::uint32_t, std::map<std::uint32_t, Mark>> inputs;  // by slot, then layer of the stage
    std::array<Mark, 2> input_gradients{}, output_gradients{};
  };
  using GradientPlace = std::pair<LayerId, std::uint32_t>;

  void start(Step step, std::uint64_t updates);
  Task run_step();
  Task drain();
  Task run_instruction(const Instruction& i);
  void forward(const Instruction& i);
  void backward(const Instruction& i);
  Task receive_reduced(const Instruction& i);
  Task fetch_weights(GroupId group);
  Task reduce_group(GroupId group);
  Task reduce_use(LayerId layer, ShardId shard, std::size_t use, Sum& out);
  void send_partial(LayerId layer, TreeNode node, const Sum& sum);
  Task vote(VotePhase phase);
  Result<void> decide(VotePhase phase, const Contribution& all, Payload& out);
  Task apply(DecisionRecord record, std::vector<ShardId> which);
  void publish(Step version);
  Contribution contribution() const;
  Task move_copies();
  Sum added(const Sum& left, const Sum& right) const;
  std::vector<ShardId> stable_copies_behind(const DecisionRecord& record) const;

  bool is_first_step() const { return state_.step == from_; }
  Step in_progress() const { return {state_.step.value + 1}; }
  RankId teller(LaneId lane) const;
  bool has_gradient(ShardId shard, Step step) const;
  const std::vector<Partial>& partials(LayerId layer);
  std::map<LayerSum, Sum> whole_sums() const;
  transport::MessageKey key(transport::MessageKind kind, std::uint32_t item, std::uint32_t part) const {
    return {kind, in_progress(), item, part};
  }
  Result<void> send(RankId to, const transport::MessageKey& key, Payload payload, const Outbox& outbox);
  Mark weights_of(LayerId layer) const;
  Mark stage_input(const Instruction& i) const;

  Parts parts_;
  const Arithmetic arithmetic_;
  const std::uint32_t per_lane_;
  const Redo whole_, redo_;
  RankProgram program_, first_;
  Step from_;
  std::vector<LaneId> begun_before_;
  std::vector<std::vector<Partial>> partials_whole_, partials_first_;  // by layer; empty: not asked yet
  bool started_ = false;

  CommitState state_;
  Step last_;
  std::optional<DecisionRecord> decided_;
  std::optional<Generation> intent_;
  Digest final_digest_;

  // Of shards of groups that this rank uses. Peers read them in place.
  std::shared_ptr<std::map<ShardId, Mark>> weights_ = std::make_shared<std::map<ShardId, Mark>>();
  std::map<ShardId, Reduced> reduced_;
  std::map<StageId, Place> stages_;
  std::map<GradientPlace, Sum> gradients_;
  std::vector<Sum> kept_;
  std::vector<double> losses_;
  Step progress_step_;
  std::set<LaneId> begun_;
  std::map<GradientPlace, TreeNode> done_;
  Outbox sent_ = make_outbox(), published_ = make_outbox(), vote_sent_ = make_outbox();
  std::map<std::pair<StageId, std::uint32_t>, Outbox> activations_sent_;
  std::map<StageId, std::array<Outbox, 2>> gradients_sent_;
};

}  // namespace kintsugi::sim::protocol
