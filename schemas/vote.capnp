@0xc7a5d81e3f6b2094;
# What ranks bring to the vote of a step (engine/control/step_commit.hpp).

using Cxx = import "/capnp/c++.capnp";
using Record = import "record.capnp";
$Cxx.namespace("kintsugi::schemas");

struct Contribution {
  shards @0 :List(ShardVote);
  lanes @1 :List(LaneLoss);
  replicas @2 :List(ReplicaVote);
  readyFor @3 :Record.Generation;      # 0.0: for none
}

struct ShardVote {
  shard @0 :UInt32;
  squaredNormBits @1 :UInt64;        # float64, of the reduced gradient
  previousDigest @2 :Record.Digest;  # of the shard's state after the step before
}

struct ReplicaVote {
  shard @0 :UInt32;
  holder @1 :UInt32;                 # rank
  previousDigest @2 :Record.Digest;
}

struct LaneLoss {
  lane @0 :UInt32;
  lossBits @1 :UInt64;               # float64, sum over the lane's tokens
}
