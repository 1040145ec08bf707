@0xb7d20c5e9a64f183;
# Saved state: DIR/state of `--save DIR` (engine/state/saved_state.hpp).
#
# Every message here is one segment, unpacked, and a struct's integers are all UInt64 in order, so that a reader without
# Cap'n Proto finds them at fixed places (scripts/state_digest.py does). In the file:
#   bytes 0..3    0 (segments - 1)
#   bytes 4..7    words of the segment
#   bytes 8..15   the root pointer; the root struct follows at once
#   bytes 16..    integer @n of the root struct, little-endian, at 16 + 8 n
# Pointers (text, lists) come after the integers.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("kintsugi::schemas");

# DIR/state/shard-NNNNNNNN.bin: this message, zeros up to byte 4096, then `count` float32 each of master weights, moment1
# and moment2, and nothing behind them. All of it is repeated in the manifest.
struct ShardFileHeader {
  magic @0 :UInt64;              # "KNTSHARD"
  version @1 :UInt64;            # 1
  jobIdentityHigh @2 :UInt64;
  jobIdentityLow @3 :UInt64;
  lineage @4 :UInt64;
  step @5 :UInt64;
  updates @6 :UInt64;            # t: COMMITs of the lineage
  dataPosition @7 :UInt64;       # samples consumed
  shard @8 :UInt64;
  group @9 :UInt64;
  offset @10 :UInt64;            # elements, within the group
  count @11 :UInt64;             # elements
  digestHigh @12 :UInt64;        # shard digest: kernels/ops.hpp, state_digest
  digestLow @13 :UInt64;
}

# DIR/state/manifest.capnp. Beside it manifest.xxh128, which `xxhsum -c` reads, holds the digest of its bytes.
struct SavedState {
  magic @0 :UInt64;              # "KNTSTATE"
  version @1 :UInt64;            # 1
  jobIdentityHigh @2 :UInt64;
  jobIdentityLow @3 :UInt64;
  lineage @4 :UInt64;
  step @5 :UInt64;
  updates @6 :UInt64;
  dataPosition @7 :UInt64;
  stateDigestHigh @8 :UInt64;    # engine/state/state_digest.hpp
  stateDigestLow @9 :UInt64;
  shardCount @10 :UInt64;        # = shards.size, for readers without Cap'n Proto
  jobYaml @11 :Text;
  shards @12 :List(SavedShard);  # ids ascending
  parameters @13 :List(SavedParameter);
}

struct SavedShard {
  shard @0 :UInt64;
  group @1 :UInt64;
  offset @2 :UInt64;
  count @3 :UInt64;
  digestHigh @4 :UInt64;
  digestLow @5 :UInt64;
}

# Element ranges, never ranks: a parameter is `rows` x `columns` elements from `offset` of its group on.
struct SavedParameter {
  name @0 :Text;
  group @1 :UInt64;
  offset @2 :UInt64;
  rows @3 :UInt64;
  columns @4 :UInt64;
}
