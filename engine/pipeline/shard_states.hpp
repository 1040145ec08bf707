// The shards a rank is primary of: committed state in the node's memory, and the one way it changes (DESIGN 3.3).
//
// An apply is a pure function of (state, reduced gradient, decision record). It publishes into this rank's own weights;
// other ranks take them from there.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/control/decision_record.hpp"
#include "engine/control/step_commit.hpp"
#include "engine/pipeline/communicator.hpp"
#include "engine/pipeline/rank_memory.hpp"
#include "engine/state/shard_store.hpp"

namespace kintsugi {

class ShardStates {
 public:
  struct Parts {
    const Plan& plan;
    const ModelLayout& layout;
    const JobConfig& job;
    const RankProgram& program;
    const RankMemory& memory;
    kernels::Device& device;
    kernels::Stream& stream;
    Communicator& communicator;
    // One segment, mapped twice: for the host, which writes headers, and for the device, which works on the arrays.
    std::span<std::byte> segment;
    const kernels::Buffer& device_segment;
    Incarnation incarnation;
  };

  explicit ShardStates(const Parts& parts);
  static std::size_t segment_bytes(const RankProgram& program, const ModelLayout& layout);

  // Writes the state of one shard; called from several threads at once, for different shards.
  using Fill = std::function<Result<void>(const Shard&, const ShardState&)>;
  // Makes every shard STABLE(version) from what `fill` writes. Blocks on the stream.
  Result<void> create(Step version, std::uint64_t updates, const Fill& fill);

  // --- enqueued -----------------------------------------------------------------------------------------------------
  // Squared norms of the reduced gradients; `votes()` has them, with the digests of the state, once the stream is here.
  void enqueue_norms();
  // COMMIT: the update and the digest of what it made. SKIP: the version advances, nothing else does.
  void enqueue_apply(const DecisionRecord& record);
  // Weights of `version` from master weights: after create only; an apply publishes by itself.
  void enqueue_convert();
  // Lends the published weights of `version` to every other rank that uses them.
  void enqueue_publish(Step version);
  // Before weights are overwritten: every peer has taken what was lent.
  void enqueue_drain() { parts_.communicator.drain(published_); }

  // --- inside work on the stream, or once it is idle ----------------------------------------------------------------
  std::vector<ShardVote> votes() const;
  // The state of shard `index` of program.shards, copied out. Blocks on the stream.
  Result<std::vector<float>> read(std::size_t index);
  std::vector<ShardVersion> versions() const;
  std::size_t state_bytes() const;

 private:
  Result<void> store(std::size_t index, const ShardVersion& version, std::span<const float> host);
  kernels::View array(std::size_t index, std::size_t offset_bytes) const;
  kernels::View published(std::size_t index) const;
  void enqueue_finish(ShardVersion next);

  const Parts parts_;
  ShardStoreLayout store_;
  std::vector<ShardSlot> slots_;                         // in the order of program.shards
  std::vector<std::vector<kernels::DecayRange>> decay_;  // likewise
  std::vector<double> squared_norms_;                    // host copies
  std::vector<Digest> digests_;
  Outbox published_;
};

}  // namespace kintsugi
