@0xa91d3c6be07f5284;
# Everything that travels on the control plane: client <-> supervisor <-> node <-> rank. One Message a frame.
#
# A job's life, seen from here:
#   client      submit                     -> supervisor, which answers accepted (or refused) and later streams progress
#   supervisor  startRanks                 -> nodes, which spawn rank processes; each sends rankUp
#   supervisor  prepare (plan, addresses)  -> nodes -> ranks; a rank asks its node for memory (segments), builds its
#                                             program, makes or reads its shards and answers prepared
#   supervisor  resume                     -> nodes -> ranks: train; the rank at the root of the control tree sends a
#                                             stepDone for each decision record
#   ranks       finished (with accounts)   -> supervisor
#   supervisor  save, if asked             -> ranks; each answers saved
#   supervisor  stop                       -> nodes -> ranks exit; each process's end is a rankDown
# Any rankDown before finished, node down, failed or passed deadline ends the job in this version: stop, then ended.

using Cxx = import "/capnp/c++.capnp";
using Record = import "record.capnp";
using PlanSchema = import "plan.capnp";
$Cxx.namespace("kintsugi::schemas");

struct Message {
  union {
    # node -> supervisor
    nodeHello @0 :NodeHello;
    # supervisor -> node
    welcome @1 :Welcome;
    startRanks @2 :StartRanks;
    leave @3 :Text;                  # the cluster ends or drops this node: end all ranks, exit; why

    # rank -> node -> supervisor
    rankUp @4 :RankUp;
    prepared @5 :Prepared;
    stepDone @6 :StepDone;
    finished @7 :RankAccount;
    saved @8 :Saved;
    failed @9 :Failed;
    # node -> supervisor: the process is gone and reaped
    rankDown @10 :RankDown;

    # supervisor -> node -> rank
    prepare @11 :Prepare;
    resume @12 :JobRef;              # the generation is in force: train
    save @13 :Save;
    stop @14 :Stop;

    # node <-> rank only (Unix link, descriptors travel beside)
    needSegments @15 :NeedSegments;
    segments @16 :Segments;

    # client -> supervisor
    submit @17 :Submit;
    cancel @18 :JobRef;              # job 0: the only one
    status @19 :Void;
    # supervisor -> client
    accepted @20 :JobRef;
    refused @21 :Refused;
    progress @22 :Progress;
    ended @23 :Ended;
    statusReply @24 :Text;           # JSON
    shutdown @25 :Void;              # client -> supervisor: end the cluster (the embedded run uses it)
  }
}

struct JobRef {
  job @0 :UInt32;
  generation @1 :Record.Generation;
}

struct NodeHello {
  hostname @0 :Text;
  slots @1 :UInt32;
  cores @2 :UInt32;
  memoryBytes @3 :UInt64;
  pid @4 :UInt32;
  incarnation @5 :UInt64;            # random for each start of the process
  kernelVariant @6 :Text;
  labels @7 :List(Text);             # "rack=r1"
  version @8 :Text;
}

struct Welcome {
  node @0 :UInt32;                   # given by the supervisor, never reused
  epoch @1 :UInt32;
}

struct StartRanks {
  job @0 :UInt32;
  ranks @1 :List(UInt32);            # this node's
  threads @2 :UInt32;                # compute threads of each
  ucxOnly @3 :Bool;                  # --transport ucx
  lineage @4 :UInt64;
  generation @5 :Record.Generation;  # to be prepared next: a rank opens its endpoints for it before it says hello
}

struct RankUp {
  job @0 :UInt32;
  rank @1 :UInt32;
  pid @2 :UInt32;
  incarnation @3 :UInt64;
  ucxAddress @4 :Data;
  kernelVariant @5 :Text;
}

struct Prepare {
  job @0 :UInt32;
  jobFile @1 :Text;                  # canonical YAML (to_yaml), paths absolute
  plan @2 :PlanSchema.Plan;
  ucxAddresses @3 :List(Data);       # by rank
  steps @4 :UInt64;                  # train until this step
  resumeDirectory @5 :Text;          # empty: initialise at step 0
  stepBudgetMs @6 :UInt64;           # deadline of any one wait inside a step
  ucxOnly @7 :Bool;
}

struct Prepared {
  job @0 :UInt32;
  generation @1 :Record.Generation;
  rank @2 :UInt32;
  planDigest @3 :Record.Digest;
  step @4 :UInt64;                   # of the state it holds
}

struct StepDone {
  job @0 :UInt32;
  record @1 :Record.DecisionRecord;
  seconds @2 :Float64;               # from the decision before to this one, at the root
}

struct Traffic {
  peer @0 :UInt32;
  bytesSent @1 :UInt64;
  bytesReceived @2 :UInt64;
}

struct RankAccount {
  job @0 :UInt32;
  rank @1 :UInt32;
  cells @2 :UInt64;                  # (stage, lane) worked, summed over steps
  microbatches @3 :UInt64;           # (stage, lane, microbatch) forward and backward, summed over steps
  flops @4 :Float64;
  bytesSent @5 :UInt64;
  bytesReceived @6 :UInt64;
  traffic @7 :List(Traffic);
  peakMemoryBytes @8 :UInt64;        # resident set, high-water mark
  parameterBytes @9 :UInt64;         # weights held for computing
  stateBytes @10 :UInt64;            # master weights and moments of its shards
  computeSeconds @11 :Float64;
  waitSeconds @12 :Float64;
  finalDigest @13 :Record.Digest;    # from the closing vote; the same at every rank
  step @14 :UInt64;
  peakFlopsPerSecond @15 :Float64;   # float32 multiply-add peak measured by this rank's threads in this run; 0: not measured
}

struct Save {
  job @0 :UInt32;
  directory @1 :Text;                # absolute; prepared by the supervisor's checkpoint coordinator
}

struct Saved {
  job @0 :UInt32;
  rank @1 :UInt32;
  shards @2 :List(ShardDigest);
}

struct ShardDigest {
  shard @0 :UInt32;
  digest @1 :Record.Digest;
}

struct Failed {
  job @0 :UInt32;
  rank @1 :UInt32;
  action @2 :UInt8;                  # ErrorAction
  message @3 :Text;
}

struct RankDown {
  job @0 :UInt32;
  rank @1 :UInt32;
  incarnation @2 :UInt64;
  why @3 :Text;                      # "was killed by signal 9", "exited with code 1"
  expected @4 :Bool;                 # after stop
}

struct Stop {
  job @0 :UInt32;
  why @1 :Text;
}

struct NeedSegments {
  arenaBytes @0 :UInt64;             # lent to peers: gradients, boundary activations, weights
  stateBytes @1 :UInt64;             # committed state: outlives the rank process
}

# Memory of a generation, as descriptors beside frames; a frame holds eight at most, so it comes in parts.
struct Segments {
  ranks @0 :List(UInt32);            # all of this node and job, ascending: one arena each
  leads @1 :Bool;                    # the first two descriptors are the ring segment and the rank's own state
  arenas @2 :List(UInt32);           # then the arenas of these
}

struct Submit {
  jobFile @0 :Text;
  source @1 :Text;                   # its path, for messages
  ranks @2 :UInt32;                  # 0: as many as there are slots, at most the job's cells
  nodes @3 :UInt32;                  # wait for this many nodes first; 0: do not
  saveDirectory @4 :Text;            # absolute or empty
  resumeDirectory @5 :Text;
  threads @6 :UInt32;                # of each rank; 0: cores of the node / its ranks
  ucxOnly @7 :Bool;
  follow @8 :Bool;                   # stream progress and the end on this link
}

struct Refused {
  action @0 :UInt8;                  # ErrorAction
  message @1 :Text;
}

struct Progress {
  job @0 :UInt32;
  text @1 :Text;                     # a phase: "waiting for 2 of 4 slots", "preparing"; empty for a step
  step @2 :UInt64;
  steps @3 :UInt64;
  loss @4 :Float32;
  gradientNorm @5 :Float32;
  learningRate @6 :Float32;
  tokensPerSecond @7 :Float64;
  ranks @8 :UInt32;
}

struct Ended {
  job @0 :UInt32;
  exitCode @1 :UInt8;                # by CLI.md
  message @2 :Text;
  report @3 :Text;                   # JSON, what --report writes; empty if the job never ran
}
