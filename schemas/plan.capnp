@0xb8c2f0a17d5e4493;
# The table of who owns what in one generation (engine/plan/plan.hpp).

using Cxx = import "/capnp/c++.capnp";
using Record = import "record.capnp";
$Cxx.namespace("kintsugi::schemas");

struct Plan {
  job @0 :UInt32;
  lineage @1 :UInt64;
  generation @2 :Record.Generation;
  lanes @3 :UInt32;
  ranks @4 :List(Member);            # ascending
  stages @5 :List(Stage);
  shards @6 :List(Holders);          # by shard
  reason @7 :Text;
  digest @8 :Record.Digest;          # over all but the reason; a receiver checks it
}

struct Member {
  rank @0 :UInt32;
  node @1 :UInt32;
}

struct Holders {
  primary @0 :UInt32;
  replicas @1 :List(UInt32);
}

struct Stage {
  firstLayer @0 :UInt32;
  endLayer @1 :UInt32;
  blocks @2 :List(Block);
}

struct Block {
  rank @0 :UInt32;
  firstLane @1 :UInt32;
  endLane @2 :UInt32;
}
