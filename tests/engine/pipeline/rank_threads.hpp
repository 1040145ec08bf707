// Ranks as threads of one process, through any number of generations: real plans, carriers and trainers, no actors. What
// nodes own (copies of shards, boards for records) outlives the ranks here, too.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <vector>

#include "engine/pipeline/trainer.hpp"

namespace kintsugi::test {

using MakeDevice = std::function<std::unique_ptr<kernels::Device>(RankId)>;

// Of a result that nothing here expects to fail.
template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return std::move(result).value();
}
inline void must(const Result<void>& result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
}

// A call of a rank on its carrier, about to be made.
struct PeerCall {
  enum class Kind : std::uint8_t { send, receive, wait_sent };
  RankId self;
  Kind kind = Kind::send;
  RankId peer;
  transport::MessageKey key;  // none of wait_sent
};
// Runs on the rank's stream; an error is what the call returns. By it a rank dies in the middle of a step.
using Hook = std::function<Result<void>(const PeerCall&)>;

// What is left of a rank whose process is gone.
enum class Remains : std::uint8_t { memory, memory_applying, nothing };

class RankThreads {
 public:
  RankThreads(JobConfig job, MakeDevice devices) : job_(std::move(job)), devices_(std::move(devices)) {}

  // Begins the generation of `plan`: ranks that are new, memory for copies, carriers and trainers. Memory of gone ranks
  // goes where the transition's moves say.
  void open(const Plan& plan, const std::optional<Transition>& transition = {}, const Hook& hook = {});
  // Calls `work` for each rank of the plan on a thread of its own. With `together`, the first that fails cancels all
  // others, as their supervisor would.
  using Work = std::function<Result<void>(Trainer&)>;
  std::map<RankId, Result<void>> run(bool together, const Work& work);

  // The rank's process is gone, with its node if nothing remains.
  void kill(RankId rank, Remains remains);
  // Everybody's answer to a fence.
  std::vector<RankReport> reports() const;
  // What a supervisor does after a fault, or a planned end: a cut, the record to all that live, a plan for `members`, the
  // next generation opened. What remains is take_over. `known`: the newest record that a root told of.
  Transition recover(const std::vector<PlanMember>& members, const std::optional<DecisionRecord>& known,
                     const Hook& hook = {});

  const Plan& plan() const { return plan_; }
  const ModelLayout& layout() const { return layout_; }
  Trainer& trainer(RankId rank) { return *ranks_.at(rank).trainer; }
  const RankState& state(RankId rank) const { return *ranks_.at(rank).state; }
  // The memfd of a copy.
  int memory(RankId rank, ShardId shard) const { return ranks_.at(rank).copies.at(shard).get(); }
  const Clock& clock() const { return clock_; }

 private:
  struct Rank {
    NodeId node;
    std::map<ShardId, FileDescriptor> copies;  // the node's
    FileDescriptor board;                      // the node's
    std::unique_ptr<kernels::Device> device;
    FileDescriptor arena;
    std::unique_ptr<RankState> state;  // null: the process is gone
    std::unique_ptr<RankBlueprint> blueprint;
    std::unique_ptr<Trainer> trainer;
  };
  void start(RankId rank, NodeId node);
  void take_memory(const std::vector<ShardMove>& moves);
  void add_memory(RankId rank, ShardId shard, FileDescriptor memory);
  void make_trainer(RankId rank, int ring, const Hook& hook, std::unique_ptr<Salvage> salvage);

  const JobConfig job_;
  const MakeDevice devices_;
  const ModelLayout layout_{job_.model};
  const SteadyClock clock_;
  Plan plan_;
  std::optional<Transition> transition_;  // that it began with
  std::map<RankId, Rank> ranks_;
};

}  // namespace kintsugi::test
