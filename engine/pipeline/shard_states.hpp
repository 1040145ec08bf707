// The shards a rank holds: committed state in the node's memory, and the one way it changes (DESIGN 3.3).
//
// An apply is a pure function of (state, reduced gradient, decision record). A primary publishes into this rank's own
// weights, other ranks take them from there; a replica only follows. Copies are numbered: those of program.shards, then
// those of program.replicas.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/control/decision_record.hpp"
#include "engine/control/step_commit.hpp"
#include "engine/pipeline/communicator.hpp"
#include "engine/pipeline/rank_memory.hpp"
#include "engine/pipeline/rank_state.hpp"

namespace kintsugi {

struct CopyRange {
  std::size_t first = 0;
  std::size_t end = 0;
};

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
    const RankState& state;  // with memory for every copy of the program
    Incarnation incarnation;
  };

  explicit ShardStates(const Parts& parts);

  // Writes the state of one shard; called from several threads at once, for different shards.
  using Fill = std::function<Result<void>(const Shard&, const ShardState&)>;
  // Makes every copy STABLE(version) from what `fill` writes. Blocks on the stream.
  Result<void> create(Step version, std::uint64_t updates, const Fill& fill);
  // Goes on from what lies there: asserts that every copy is STABLE(version).
  void adopt(Step version, std::uint64_t updates);

  CopyRange primaries() const { return {0, parts_.program.shards.size()}; }
  CopyRange replicas() const { return {parts_.program.shards.size(), copies_.size()}; }
  const ShardCopy& copy(std::size_t index) const { return *copies_[index]; }

  // --- enqueued -----------------------------------------------------------------------------------------------------
  // Squared norms of the primaries' reduced gradients; `votes()` has them, with the digests of the state, once the stream
  // is here.
  void enqueue_norms();
  // COMMIT: the update and the digest of what it made. SKIP: the version advances, nothing else does. Nothing in it can
  // fail, so on a living rank it runs whole or, if the stream had failed before, not at all.
  void enqueue_apply(const DecisionRecord& record, CopyRange which);
  // Weights from master weights: after create and adopt only; an apply publishes by itself.
  void enqueue_convert();
  // Lends the published weights of `version` to every other rank that uses them.
  void enqueue_publish(Step version);
  // Before weights are overwritten: every peer has taken what was lent.
  void enqueue_drain() { parts_.communicator.drain(published_); }

  // --- inside work on the stream, or once it is idle ----------------------------------------------------------------
  std::vector<ShardVote> votes() const;
  std::vector<ReplicaVote> acknowledgements() const;
  // The state of a copy, copied out. Blocks on the stream.
  Result<std::vector<float>> read(std::size_t index);
  // Of every copy. Asserts that none is APPLYING.
  std::vector<ShardVersion> versions() const;
  std::size_t bytes(CopyRange which) const;  // of state, without headers and padding

 private:
  Result<void> store(std::size_t index, const ShardVersion& version, std::span<const float> host);
  kernels::View published(std::size_t index) const;
  kernels::View digests(CopyRange which) const;
  void enqueue_update(const DecisionRecord& record, CopyRange which);

  const Parts parts_;
  std::vector<const ShardCopy*> copies_;
  std::vector<std::vector<kernels::DecayRange>> decay_;  // by copy
  std::vector<double> squared_norms_;                    // by primary; host copies
  std::vector<Digest> digests_;                          // by copy; host copies
  Outbox published_;
};

}  // namespace kintsugi
