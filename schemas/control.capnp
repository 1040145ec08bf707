@0xa91d3c6be07f5284;
# Everything that travels on the control plane: client <-> supervisor <-> node <-> rank. One Message a frame.
#
# A job's life, seen from here:
#   client      submit                     -> supervisor, which answers accepted (or refused) and later streams progress
#   supervisor  startRanks                 -> nodes, which spawn rank processes; each sends rankUp
# then, for every generation:
#   supervisor  fence                      -> nodes -> ranks: drop all work of older generations. Each rank answers
#                                             rankReport, each node nodeReport: what they hold
#   supervisor  prepare (plan, addresses,  -> nodes -> ranks; a rank asks its node for memory (segments), makes, takes over
#               transition)                   or fetches its shards and answers prepared
#   supervisor  resume                     -> nodes -> ranks: train; the rank at the root of the control tree sends a
#                                             stepDone for each decision record
# A rankDown, a lost node, a failed or a passed deadline makes the next generation; so does a planned change, after intend.
#   ranks       finished (with accounts)   -> supervisor
#   supervisor  save, if asked             -> ranks; each answers saved
#   supervisor  stop                       -> nodes -> ranks exit; each process's end is a rankDown
# A node that has lost its supervisor drops what it would say. To the next one it says it whole: stepHistory, jobState, and
# finished or failed of the generation in force.

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

    # generations
    fence @26 :Fence;                # supervisor -> node -> rank
    rankReport @27 :RankReport;      # rank -> node -> supervisor
    nodeReport @28 :NodeReport;      # node -> supervisor
    intend @29 :JobRef;              # supervisor -> node -> rank: vote for changing to this generation
    killRank @30 :KillRank;          # supervisor -> node: it does not answer

    inject @31 :Inject;              # client -> supervisor -> node: a fault, on purpose
    drain @32 :UInt32;               # client -> supervisor: a node, to leave by plan
    evict @33 :UInt32;               # client -> supervisor: a rank, likewise
    pauseJob @34 :UInt32;            # client -> supervisor; job 0: the only one
    resumeJob @35 :UInt32;           # likewise

    # after the loss of a supervisor
    follow @36 :JobRef;              # client -> supervisor, answered as a submit is
    stepHistory @37 :StepHistory;    # node -> supervisor: before its jobState, in pieces
    jobState @38 :JobState;          # node -> supervisor

    # the supervisor's journal, which nodes keep as well (engine/control/journal_mirrors.hpp)
    journalPiece @39 :JournalPiece;  # supervisor -> node: keep it; node -> whoever takes over
    journalKept @40 :UInt64;         # node -> supervisor: all up to this entry
    journalWanted @41 :Void;         # whoever takes over -> node

    supervision @42 :Supervision;    # node -> rank

    # actors, which may be restarted in their process (actors/supervised.hpp)
    restate @43 :JobRef;             # supervisor -> node: a new supervisor of this job asks for what the last one was told
    processActors @44 :ProcessActors;  # rank -> node -> supervisor, at each change

    stepKnown @45 :StepDone;         # rank -> node, which keeps it: from the first of its ranks, if the root is elsewhere
    stepsWanted @46 :StepsWanted;    # supervisor -> node, which answers with stepHistory: its report lacks them
  }
}

# Whether anybody could act on what a rank finds out.
struct Supervision {
  lost @0 :Bool;                     # nobody would decide about a wait that takes too long: it goes on
  parkAtNs @1 :Int64;                # boot-time clock: from then on, contribute to no vote
}

struct StepsWanted {
  job @0 :UInt32;
  after @1 :UInt64;
  upTo @2 :UInt64;
}

struct JournalPiece {
  clusterId @0 :UInt64;
  epoch @1 :UInt32;                  # of the supervisor that numbers entries
  begins @2 :Bool;                   # a new copy, compacted; what was kept before goes once it is whole
  upTo @3 :UInt64;                   # the newest entry, once this piece is kept; 0: more pieces of a new copy follow
  entries @4 :List(Data);            # encode_entry() of engine/telemetry
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
  formerNode @9 :UInt32;             # its number under a supervisor that was lost; 0: none
  jobs @10 :List(UInt32);            # that it has run since
  clusterId @11 :UInt64;             # of the supervisor that it served last; 0: of none
  servedEpoch @12 :UInt32;           # its epoch,
  servedIncarnation @13 :UInt64;     # and which start of it
  copyEpoch @14 :UInt32;             # of the journal that this node keeps a copy of; 0: none
  copyUpTo @15 :UInt64;              # the newest entry there
}

struct Welcome {
  node @0 :UInt32;                   # given by the supervisor, never reused
  epoch @1 :UInt32;
  clusterId @2 :UInt64;              # of its journal; 0: it keeps none
}

# What a job is on a node that has outlived its supervisor.
struct JobState {
  job @0 :UInt32;
  generation @1 :Record.Generation;  # of the newest fence that it answered
  plan @2 :PlanSchema.Plan;          # of that generation, if it was resumed; else null
  living @3 :List(LivingRank);
  gone @4 :List(UInt32);             # ranks that left memory there
  threads @5 :UInt32;                # of each rank
}

struct LivingRank {
  rank @0 :UInt32;
  pid @1 :UInt32;
  kernelVariant @2 :Text;            # empty: no hello yet
}

struct StepHistory {
  job @0 :UInt32;
  steps @1 :List(StepDone);          # that became final, as far as this node was told, ascending
}

struct StartRanks {
  job @0 :UInt32;
  ranks @1 :List(UInt32);            # this node's
  threads @2 :UInt32;                # compute threads of each
  ucxOnly @3 :Bool;                  # --transport ucx
}

struct KillRank {
  job @0 :UInt32;
  rank @1 :UInt32;
  why @2 :Text;
}

struct Fence {
  job @0 :UInt32;
  lineage @1 :UInt64;
  generation @2 :Record.Generation;
  why @3 :Text;
  knownStep @4 :UInt64;              # the newest that the supervisor has a record of
}

# One STABLE copy of a shard.
struct ShardCopy {
  shard @0 :UInt32;
  version @1 :UInt64;
  updates @2 :UInt64;
  digest @3 :Record.Digest;
  hasNextGradient @4 :Bool;          # the reduced gradient of version + 1 is there
}

# Of one layer's gradient, over a subtree of lanes.
struct PartialSum {
  layer @0 :UInt32;
  firstLane @1 :UInt32;
  lanes @2 :UInt32;
  rank @3 :UInt32;                   # in a transition: who has it
}

struct Holding {
  rank @0 :UInt32;
  copies @1 :List(ShardCopy);
  record @2 :Record.DecisionRecord;  # the newest it holds; null: none
  step @3 :UInt64;                   # the one in progress, of which it has
  sums @4 :List(PartialSum);
  begun @5 :List(UInt32);            # lanes
}

struct RankReport {
  job @0 :UInt32;
  generation @1 :Record.Generation;
  holding @2 :Holding;
  ucxAddress @3 :Data;               # of its endpoints for this generation
  records @4 :List(Record.DecisionRecord);  # of steps after knownStep, ascending
}

struct NodeReport {
  job @0 :UInt32;
  generation @1 :Record.Generation;
  leftBehind @2 :List(Holding);      # by ranks whose processes are gone
}

struct ShardMove {
  shard @0 :UInt32;
  to @1 :UInt32;
  from @2 :UInt32;
  takeOver @3 :Bool;                 # the memory itself, on one node
}

# How a generation begins (engine/control/recovery.hpp).
struct Transition {
  step @0 :UInt64;
  updates @1 :UInt64;
  record @2 :Record.DecisionRecord;  # of `step`; null: no copy lacks it
  moves @3 :List(ShardMove);
  sums @4 :List(PartialSum);         # of step + 1, that its first step need not compute
  again @5 :List(UInt32);            # lanes that had been begun and are computed once more
}

struct RankUp {
  job @0 :UInt32;
  rank @1 :UInt32;
  pid @2 :UInt32;
  incarnation @3 :UInt64;
  kernelVariant @4 :Text;
}

struct Prepare {
  job @0 :UInt32;
  jobFile @1 :Text;                  # canonical YAML (to_yaml), paths absolute
  plan @2 :PlanSchema.Plan;
  ucxAddresses @3 :List(Data);       # in the order of the plan's ranks
  steps @4 :UInt64;                  # train until this step
  resumeDirectory @5 :Text;          # without a transition: where state is read from; empty: initialise at step 0
  stepBudgetMs @6 :UInt64;           # deadline of any one wait inside a step
  ucxOnly @7 :Bool;
  transition @8 :Transition;         # null: state is made anew
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
  generation @16 :Record.Generation;
  replicaBytes @17 :UInt64;          # of copies of other ranks' shards
  forwardAgain @18 :UInt64;          # of lanes that a fault interrupted: (stage, lane, microbatch) run once more
  backwardAgain @19 :UInt64;
}

struct Save {
  job @0 :UInt32;
  directory @1 :Text;                # absolute; prepared by the supervisor's checkpoint coordinator
}

struct Saved {
  job @0 :UInt32;
  rank @1 :UInt32;
  shards @2 :List(ShardDigest);
  generation @3 :Record.Generation;
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
  generation @4 :Record.Generation;  # of the work that failed
  lostPeers @5 :List(UInt32);        # ranks on other nodes that the network has given up on
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
  generation @0 :Record.Generation;
  arenaBytes @1 :UInt64;             # lent to peers: gradients, boundary activations, weights
  copies @2 :List(NeedCopy);         # that the rank does not have yet
}

# The tree of one process, whole.
struct ProcessActors {
  pid @0 :UInt32;
  rank @1 :UInt32;
  ofRank @2 :Bool;                   # of the process of that rank; else of the node itself
  actors @3 :List(Actor);            # a parent before its children
}

struct Actor {
  name @0 :Text;                     # as its process calls it
  depth @1 :UInt32;                  # 0: the root
  incarnation @2 :UInt32;            # from 1
  restarts @3 :UInt32;
  lastCrash @4 :Text;                # why the incarnation before ended; empty: there was none
}

# Memory of a copy of a shard: it outlives the rank process.
struct NeedCopy {
  shard @0 :UInt32;
  bytes @1 :UInt64;
  takeOver @2 :Bool;                 # the copy that `from` left behind
  from @3 :UInt32;
}

# Memory as descriptors beside frames; a frame holds eight at most, so it comes in parts.
struct Segments {
  generation @0 :Record.Generation;
  parts @1 :List(Segment);           # one a descriptor, in order
  last @2 :Bool;
}

struct Segment {
  union {
    ring @0 :Void;                   # of this node's ranks in this generation
    board @1 :Void;                  # for the newest decision record
    arena @2 :UInt32;                # of a rank of this node, its own included
    copy @3 :UInt32;                 # of a shard
  }
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

# A real fault on a live cluster.
struct Inject {
  enum Fault {
    kill @0;
    stop @1;
    continue @2;
    corrupt @3;                      # flips a bit of a copy of a shard
    crash @4;                        # an actor throws
  }
  fault @0 :Fault;
  target :union {
    supervisor @1 :Void;
    node @2 :UInt32;
    rank @3 :UInt32;
    actor @5 :Text;                  # as status names it: "stage@2"
  }
  shard @4 :UInt32;                  # corrupt: of the rank's copies
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
