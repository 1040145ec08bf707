@0xd68f2b17a3c0495e;
# The supervisor's journal: STATE/journal (engine/telemetry/journal.hpp). One JournalEntry a frame; what frames look like is
# in engine/telemetry/journal_format.hpp. A journal outlives the version that wrote it: nothing here imports what is sent.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("kintsugi::schemas::journal");

struct JournalEntry {
  wallNs @0 :Int64;                  # since 1970, for people
  union {
    started @1 :Started;
    nodeJoined @2 :NodeJoined;
    nodeLeft @3 :NodeLeft;
    submitted @4 :Submitted;
    ended @5 :Ended;
    generation @6 :GenerationMade;
    event @7 :Event;
    record @8 :RecordSeen;
    incident @9 :IncidentOver;
  }
}

struct Started {                     # a supervisor took this journal
  epoch @0 :UInt32;
  clusterId @1 :UInt64;              # random, made with the journal
  host @2 :Text;
  pid @3 :UInt32;
  version @4 :Text;
}

struct NodeJoined {
  node @0 :UInt32;
  host @1 :Text;
  incarnation @2 :UInt64;
  slots @3 :UInt32;
  cores @4 :UInt32;
  memoryBytes @5 :UInt64;
  labels @6 :List(Text);             # "rack=r1"
  kernelVariant @7 :Text;
  version @8 :Text;
  pid @9 :UInt32;
}

struct NodeLeft {
  node @0 :UInt32;
  why @1 :Text;
}

struct Submitted {                   # all that a restarted supervisor needs to have the job again
  job @0 :UInt32;
  lineage @1 :UInt64;
  jobFile @2 :Text;                  # canonical YAML, paths absolute
  source @3 :Text;                   # its path, for messages
  ranks @4 :UInt32;                  # 0: as many as there are slots
  nodes @5 :UInt32;                  # wait for this many first; 0: do not
  threads @6 :UInt32;                # of each rank; 0: the node's cores / its ranks
  saveDirectory @7 :Text;            # absolute or empty
  resumeDirectory @8 :Text;
  ucxOnly @9 :Bool;
  firstStep @10 :UInt64;             # of the state it begins with
  updates @11 :UInt64;               # t there
}

struct Ended {
  job @0 :UInt32;
  exitCode @1 :UInt8;
  message @2 :Text;
}

struct GenerationMade {              # durable before its fence is first sent
  job @0 :UInt32;
  lineage @1 :UInt64;
  epoch @2 :UInt32;
  counter @3 :UInt32;
  nextRank @4 :UInt32;               # no rank of the job ever had this number or a higher one
  why @5 :Text;
  incidents @6 :UInt32;              # opened in the job so far
  paused @7 :Bool;                   # or to be
}

enum EventKind {
  evidence @0;
  suspicion @1;
  fence @2;
  report @3;
  plan @4;
  prepare @5;
  resume @6;
  firstCommit @7;
  incidentOver @8;
  note @9;
}

struct Event {                       # a line of the timeline that `explain` prints
  job @0 :UInt32;
  epoch @1 :UInt32;                  # of the generation
  counter @2 :UInt32;
  incident @3 :UInt32;               # from 1, within the job; 0: of none
  kind @4 :EventKind;
  by @5 :Text;                       # who observed or decided
  subject @6 :Text;
  text @7 :Text;
  bytesMoved @8 :UInt64;
  lanesRecomputed @9 :UInt64;
  stepsLost @10 :UInt64;
  step @11 :UInt64;
}

struct RecordSeen {                  # now and then: committed state is at this step or later
  job @0 :UInt32;
  step @1 :UInt64;
  message @2 :Data;                  # a DecisionRecord (record.capnp), whole
}

struct IncidentOver {                # what a report says of it
  job @0 :UInt32;
  id @1 :UInt32;                     # from 1, within the job
  kind @2 :Text;
  target @3 :Text;
  why @4 :Text;
  epoch @5 :UInt32;                  # of the generation that it ended in
  counter @6 :UInt32;
  restarts @7 :UInt32;
  detectedNs @8 :Int64;              # since 1970, as all here
  fencedNs @9 :Int64;                # 0: not, as all that follow
  resumedNs @10 :Int64;
  firstCommitNs @11 :Int64;
  lanesRecomputed @12 :UInt64;
  bytesMoved @13 :UInt64;
  stepsLost @14 :UInt64;
}
