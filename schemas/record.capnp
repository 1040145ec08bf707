@0xe3a1b7c45d2f9061;
# What the vote of a step yields (DESIGN section 2, "decision record"). Scalars travel as bits.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("kintsugi::schemas");

struct Generation {
  epoch @0 :UInt32;
  counter @1 :UInt32;
}

struct Digest {
  high @0 :UInt64;
  low @1 :UInt64;
}

enum Outcome {
  commit @0;
  skip @1;   # version and data position advance; state and t do not
}

struct DecisionRecord {
  job @0 :UInt32;
  lineage @1 :UInt64;
  generation @2 :Generation;
  step @3 :UInt64;                 # the step that became final
  outcome @4 :Outcome;
  updates @5 :UInt64;              # t after this step: number of COMMITs of the lineage
  clipScaleBits @6 :UInt32;        # float32
  learningRateBits @7 :UInt32;     # float32
  biasCorrection1Bits @8 :UInt32;  # float32
  biasCorrection2Bits @9 :UInt32;  # float32
  lossBits @10 :UInt32;            # float32, mean over the step's tokens
  gradientNormBits @11 :UInt32;    # float32, before clipping
  failureDomains @12 :UInt16;      # R_eff: how many acknowledged the step
  previousDigest @13 :Digest;      # of committed state after step - 1
  effects @14 :List(Effect);       # what else takes effect after this step
}

struct Effect {
  union {
    stop @0 :Void;                 # the job ends after this step
    pause @1 :Void;
    plan @2 :Generation;           # switch to this generation
    checkpoint @3 :Void;
    revision @4 :UInt32;           # number of the journaled revision
  }
}
