// Carries out a rank's instruction list: forward, backward and the movement between stages, up to the reduced gradients
// of the shards this rank holds. Everything is enqueued on one stream; the calling thread waits for nothing.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "engine/data/prefetcher.hpp"
#include "engine/pipeline/communicator.hpp"
#include "engine/pipeline/rank_memory.hpp"

namespace kintsugi {

// What the stream has done: (stage, microbatch), once through all layers of the stage.
struct WorkCount {
  std::uint64_t forward = 0;
  std::uint64_t backward = 0;
  // Of these, those of lanes that had been begun before a fault.
  std::uint64_t forward_again = 0;
  std::uint64_t backward_again = 0;
  double flops = 0;
  WorkCount& operator+=(const WorkCount& other);
};

// How far the step in progress is.
struct StepProgress {
  Step step;
  std::set<LaneId> begun;  // by a forward
  // By (layer, gradient buffer): what the buffer holds, complete.
  std::map<std::pair<LayerId, std::uint32_t>, TreeNode> sums;
};

class Executor {
 public:
  struct Parts {
    const Plan& plan;
    const ModelLayout& layout;
    const JobConfig& job;
    const RankProgram& program;
    const RankProgram& first;          // of the first step
    const Redo& redo;                  // likewise: what `first` was compiled from
    const std::vector<LaneId>& again;  // lanes that the first step computes though they had been begun before a fault
    const RankMemory& memory;
    LayerPrograms& layers;
    kernels::Device& device;
    kernels::Stream& stream;
    Communicator& communicator;
    // Of the microbatches of the first and last stage that this rank works, in its order; null where it works none.
    Prefetcher* tokens;
    Prefetcher* targets;
  };

  explicit Executor(const Parts& parts);

  // Enqueues step `step`, from committed state step - 1. Before it, the outbox of the step before was drained. The first
  // call of all runs `first`.
  void enqueue_step(Step step);
  // Enqueues the wait for all that this step lent to peers: after its record is held.
  void drain_step();
  // Once the stream is idle.
  const WorkCount& count() const { return count_; }
  const StepProgress& progress() const { return progress_; }
  // The newest step whose reduced gradient of a shard held here is complete, in memory.reduced until the next step's
  // begins. Once the stream is idle.
  Step reduced(ShardId shard) const { return reduced_.at(shard); }

 private:
  void run(const Instruction& i);
  void fetch_weights(GroupId group);
  void load(const Instruction& i, Prefetcher& from, kernels::View into, bool targets);
  void forward(const Instruction& i);
  void backward(const Instruction& i);
  void send_activation(const Instruction& i);
  void receive_activation(const Instruction& i);
  void send_gradient(const Instruction& i);
  void receive_gradient(const Instruction& i);
  void merge_lanes(const Instruction& i);
  // Work on the stream that keeps the books.
  template <class Note>
  void note(Note note);
  void note_backward(const Instruction& i);
  bool is_again(LaneId lane) const;
  void send_partial(const Instruction& i, const GroupViews& sum);
  void reduce_group(GroupId group);
  void receive_reduced(const Instruction& i);
  void enqueue_reduced(ShardId shard);
  void reduce_use(const Shard& shard, const ParameterGroup& group, std::size_t use, kernels::View out);

  const StageMemory& stage(StageId id) const { return parts_.memory.stages.at(id); }
  kernels::View stage_input(const Instruction& i) const;
  kernels::View output_gradient(const Instruction& i) const;
  transport::MessageKey key(transport::MessageKind kind, std::uint32_t item, std::uint32_t part) const;
  LaneId lane_of(const Instruction& i) const { return {i.microbatch / per_lane_}; }
  const GroupViews& gradients(LayerId layer, std::uint32_t buffer) const;

  const Parts parts_;
  kernels::Ops& ops_;
  const RankId self_;
  const std::uint32_t per_lane_;  // microbatches
  const float loss_scale_;
  const Redo whole_;
  bool redoing_ = false;  // the step being enqueued is the first
  Step step_;
  Outbox sent_;                                                           // partial and reduced gradients of the step
  std::map<std::pair<StageId, std::uint32_t>, Outbox> activations_sent_;  // by slot
  std::map<StageId, std::array<Outbox, 2>> gradients_sent_;               // by parity of the microbatch
  std::map<ShardId, Step> reduced_;  // by shard held; written by work on the stream
  // Written by work on the stream.
  WorkCount count_;
  StepProgress progress_;
};

}  // namespace kintsugi
