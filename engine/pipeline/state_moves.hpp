// Copies of shards on their way to new holders, over the data plane of the generation that needs them (DESIGN 7, Switch).
//
// Every rank goes through the moves in the order of the transition and takes part in its own. So the earliest move not
// done has both its ends at work on it: nobody waits in a circle, however small the carriers' queues. A copy
// travels in pieces, its digest first. Who sends or takes memory over compares the copy with the digest in its header; a
// damaged one is no holder any more, so the next generation does without it. Who receives compares again.
#pragma once

#include "engine/pipeline/communicator.hpp"
#include "engine/pipeline/rank_state.hpp"

namespace kintsugi {

class StateMoves {
 public:
  struct Parts {
    RankId self;
    const RankState& state;
    kernels::Device& device;
    kernels::Stream& stream;
    Communicator& communicator;
    kernels::View digest;  // (16) byte, scratch
    Incarnation incarnation;
  };

  explicit StateMoves(const Parts& parts) : parts_(parts) {}

  // Enqueues this rank's part of `transition`; lives until the stream has done it. What comes in is then STABLE. On the
  // stream, Error{end_generation}: a peer is gone, or a copy is not what its digest says.
  void enqueue(const Transition& transition);

 private:
  Result<void> send(const ShardCopy& copy, RankId to, const ShardVersion& version);
  Result<void> receive(const ShardCopy& copy, RankId from, const ShardVersion& version);
  Result<void> check_held(const ShardCopy& copy, Step version);
  Result<Digest> digest_of(const ShardCopy& copy);

  const Parts parts_;
  Outbox sent_;
};

}  // namespace kintsugi
