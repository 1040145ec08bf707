// One rank's training in one generation: a blueprint that says what memory it needs, then a trainer that makes state or
// takes it over, runs steps and, at the job's last, ends with the digest of all state. A step is a transaction:
// instruction list, vote, apply, publish.
//
// A generation ends by a vote (`next_generation`) or by a fault. After a fault the old trainer tells what it holds
// (`inventory`, `sums`) and finishes the step whose record is known (`complete`) from the gradients it retained; then it
// leaves its partial sums (`salvage`) and is destroyed, and the trainer of the next generation goes on over the same
// RankState (`take_over`).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "engine/pipeline/executor.hpp"
#include "engine/pipeline/rank_blueprint.hpp"
#include "engine/pipeline/salvage.hpp"
#include "engine/pipeline/shard_states.hpp"
#include "engine/pipeline/vote_gate.hpp"
#include "engine/state/saved_state.hpp"

namespace kintsugi {

class Trainer {
 public:
  struct Parts {
    std::unique_ptr<RankBlueprint> blueprint;
    kernels::Device& device;
    std::unique_ptr<transport::PointToPoint> peers;
    const Clock& clock;
    std::unique_ptr<kernels::Buffer> arena;  // peers may read it
    RankState& state;                        // with memory for every copy of the blueprint; outlives the trainer
    Duration wait_limit;                     // of any one wait inside a step
    Incarnation incarnation;
    // Of the trainer before: with every sum of blueprint->first.kept. Gone when `create` returns.
    std::unique_ptr<Salvage> salvage = nullptr;
    const Clock* boot_clock = nullptr;  // by which supervision is lost (VoteGate); none: `clock`
  };
  // Maps memory and opens the data. Error{tell_user}: data or memory.
  static Result<std::unique_ptr<Trainer>> create(Parts parts);
  ~Trainer();

  // One of these first. The first two make every copy, replicas too, at step 0 or from a saved state.
  Result<void> initialise();
  Result<void> load(const SavedState& saved);
  // Goes on at transition.step: carries out the moves, then every copy of the plan must be STABLE there (asserted).
  // Error{end_generation}: a peer is gone, or a copy is damaged; nothing that was whole before is less so.
  Result<void> take_over(const Transition& transition);

  // Trains until `last` is final, and votes on the digest of all state; or until a step whose record says
  // `next_generation` is, without that vote. Every copy is then STABLE at that step. `on_step` runs on the calling thread
  // at the root of the control tree, after each decision, and `on_known` at every other rank. Ends with Error{cancelled} after `cancel`, with
  // Error{end_generation} when a peer is gone.
  using OnStep = std::function<void(const DecisionRecord&, double seconds)>;
  Result<void> run(Step last, const OnStep& on_step, const OnStep& on_known = {});
  // Thread safe. From now on this rank is ready to change to `next` after any step but the job's last.
  void intend(Generation next);
  // Set after a run that ended by it.
  std::optional<Generation> next_generation() const;
  // Thread safe. While it is lost no wait inside a step has a deadline; from `park_at` on this rank contributes to no vote.
  void set_supervision(const Supervision& supervision);
  // Thread safe; at once.
  void cancel(const Error& why);

  // After any of the above ended in an error. Applies `record` to the copies that are at the step before and have its
  // gradient: every copy that took part in its vote. Those at record.step stay as they are.
  Result<void> complete(const DecisionRecord& record);
  // Likewise, or after a run that ended well: every copy in the rank's memory that is STABLE.
  std::vector<CopyReport> inventory() const;
  // Likewise: of the step in progress.
  SumReport sums() const;
  // Likewise, and the last call of all: takes the step's buffers along where `next` counts on them.
  std::unique_ptr<Salvage> salvage(const std::optional<Transition>& next);
  // Thread safe. Whom the network has given up on.
  std::set<RankId> lost_peers() const { return parts_.peers->lost_peers(); }
  // Thread safe. The newest one held, whatever generation it is of.
  std::optional<DecisionRecord> record() const { return parts_.state.record(); }

  Step step() const { return state_.step; }
  const CommitState& state() const { return state_; }
  StatePosition position() const;
  Digest final_digest() const { return final_digest_; }
  const RankBlueprint& blueprint() const { return *parts_.blueprint; }
  ShardStates& shards() { return *shards_; }

  struct Account {
    std::uint64_t cells = 0;  // (stage, lane) run backward, summed over steps
    WorkCount work;
    double busy_seconds = 0;  // of the stream inside steps, waits excluded
    double wait_seconds = 0;
    std::size_t parameter_bytes = 0;
    std::size_t state_bytes = 0;  // of primaries
    std::size_t replica_bytes = 0;
    std::map<RankId, transport::PeerTraffic> traffic;
    // Of one rank over its generations: work adds up, memory is the newest.
    Account& operator+=(const Account& later);
  };
  Account account() const;

 private:
  explicit Trainer(Parts parts);
  Result<void> open_memory();
  Result<void> take_sums();
  Result<void> open_data();
  Result<void> start(Step step, std::uint64_t updates);
  Result<void> wait_for_stream();
  void enqueue_vote();
  void enqueue_closing_vote();
  Contribution contribution();
  const StepProgress* progress() const;  // of the step in progress; null: not begun
  // Those of the step in progress, with where they lie.
  std::map<LayerSum, GroupViews> whole_sums() const;
  bool is_first_step() const { return state_.step == parts_.blueprint->from; }
  // Which rank tells of `lane`'s loss in the step in progress.
  RankId teller(LaneId lane) const;
  Step step_in_progress() const { return {state_.step.value + 1}; }
  // The reduced gradient of `step` is complete, for a shard of the plan.
  bool has_gradient(ShardId shard, Step step) const;
  Result<std::vector<std::byte>> vote(std::uint32_t phase, const Contribution& own,
                                      const std::function<Result<std::vector<std::byte>>(const Contribution&)>& decide);

  Parts parts_;
  std::unique_ptr<kernels::Stream> stream_;
  std::unique_ptr<kernels::Buffer> local_;
  RankMemory memory_;
  VoteGate gate_;
  std::unique_ptr<Communicator> communicator_;
  // `cancel` comes from any thread, while this one may be making the feeders.
  std::mutex feeders_mutex_;
  std::unique_ptr<Prefetcher> tokens_, targets_;
  std::optional<Error> cancelled_;
  std::unique_ptr<ShardStates> shards_;
  std::unique_ptr<Executor> executor_;
  std::vector<LaneId> begun_before_;  // of the first step, by trainers before
  std::vector<float> losses_;         // host copy, by microbatch of the step
  CommitState state_;
  Step last_;                              // of the job
  std::optional<DecisionRecord> decided_;  // in this generation; of the step in progress once the vote is over
  std::mutex intent_mutex_;
  std::optional<Generation> intent_;
  Digest final_digest_;
  double step_seconds_ = 0;
};

}  // namespace kintsugi
