// One rank's training: a blueprint that says what memory it needs, then a trainer that makes state, runs steps and ends
// with the digest of all state. A step is a transaction: instruction list, vote, apply, publish.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "engine/pipeline/executor.hpp"
#include "engine/pipeline/shard_states.hpp"
#include "engine/state/saved_state.hpp"

namespace kintsugi {

// What follows from (job, plan, rank) before any memory exists.
struct RankBlueprint {
  JobConfig job;
  ModelLayout layout;
  Plan plan;
  RankProgram program;
  LayerPrograms layers;
  std::size_t arena_bytes = 0;  // read by peers
  std::size_t state_bytes = 0;  // outlives the process
  std::size_t local_bytes = 0;

  static std::unique_ptr<RankBlueprint> make(const JobConfig& job, const Plan& plan, RankId rank, kernels::Ops& ops);
};

// Memory handed to a rank by its node, at least as large as the blueprint says.
struct RankSegments {
  std::unique_ptr<kernels::Buffer> arena;  // peers may read it
  std::unique_ptr<kernels::Buffer> state;
  std::span<std::byte> state_bytes;  // the host's mapping of `state`
};

class Trainer {
 public:
  struct Parts {
    std::unique_ptr<RankBlueprint> blueprint;
    kernels::Device& device;
    std::unique_ptr<transport::PointToPoint> peers;
    const Clock& clock;
    RankSegments segments;
    Duration wait_limit;  // of any one wait inside a step
    Incarnation incarnation;
  };
  // Maps memory and opens the data. Error{tell_user}: data or memory.
  static Result<std::unique_ptr<Trainer>> create(Parts parts);
  ~Trainer();

  // Makes the shards of this rank, at step 0 or from a saved state.
  Result<void> initialise();
  Result<void> load(const SavedState& saved);

  // Trains until `last` is final. `on_step` runs on the calling thread at the root of the control tree, after each
  // decision. Ends with Error{cancelled} after `cancel`, with Error{end_generation} when a peer is gone.
  Result<void> run(Step last, const std::function<void(const DecisionRecord&, double seconds)>& on_step);
  // Thread safe; at once.
  void cancel(const Error& why);

  Step step() const { return state_.step; }
  const CommitState& state() const { return state_; }
  StatePosition position() const;
  Digest final_digest() const { return final_digest_; }
  const RankBlueprint& blueprint() const { return *parts_.blueprint; }
  ShardStates& shards() { return *shards_; }

  struct Account {
    std::uint64_t cells = 0;  // (stage, lane), summed over steps
    WorkCount work;
    double busy_seconds = 0;  // of the stream inside steps, waits excluded
    double wait_seconds = 0;
    std::size_t parameter_bytes = 0;
    std::size_t state_bytes = 0;
    std::map<RankId, transport::PeerTraffic> traffic;
  };
  Account account() const;

 private:
  explicit Trainer(Parts parts);
  Result<void> open_memory();
  Result<void> open_data();
  Result<void> start(Step step, std::uint64_t updates);
  Result<void> wait_for_stream();
  void enqueue_vote();
  void enqueue_closing_vote();
  Contribution contribution() const;
  Result<std::vector<std::byte>> vote(std::uint32_t phase, const Contribution& own,
                                      const std::function<Result<std::vector<std::byte>>(const Contribution&)>& decide);

  Parts parts_;
  std::unique_ptr<kernels::Stream> stream_;
  std::unique_ptr<kernels::Buffer> local_;
  RankMemory memory_;
  std::unique_ptr<Communicator> communicator_;
  // `cancel` comes from any thread, while this one may be making the feeders.
  std::mutex feeders_mutex_;
  std::unique_ptr<Prefetcher> tokens_, targets_;
  std::optional<Error> cancelled_;
  std::unique_ptr<ShardStates> shards_;
  std::unique_ptr<Executor> executor_;
  std::vector<float> losses_;  // host copy, by microbatch of the step
  CommitState state_;
  std::optional<DecisionRecord> record_;  // of the step in progress, set by the vote
  Digest final_digest_;
  std::uint64_t steps_run_ = 0;
  double step_seconds_ = 0;
};

}  // namespace kintsugi
