@0x9b6f04d1c8e25a37;
# The header of every data-plane message between nodes. Data only and of one size: eight words after the root pointer.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("kintsugi::schemas");

struct TensorHeader {
  job @0 :UInt32;
  from @1 :UInt32;        # rank of the sender
  lineage @2 :UInt64;
  epoch @3 :UInt32;       # of the generation
  counter @4 :UInt32;
  step @5 :UInt64;
  item @6 :UInt32;
  part @7 :UInt32;
  bytes @8 :UInt64;       # of the payload
  released @9 :UInt64;    # credits: how many messages of the receiver the sender has released so far
  kind @10 :UInt8;        # transport::MessageKind
}
