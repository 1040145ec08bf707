// What processes of the simulated cluster say to one another: the frames of schemas/control.capnp, as values.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/control/job_events.hpp"
#include "sim/protocol/memory.hpp"

namespace kintsugi::sim::protocol {

namespace say {

// --- rank -> node, and on to the supervisor unless said otherwise ---------------------------------------------------
struct RankUp {
  RankId rank;
};
struct RankReported {
  Generation generation;
  RankReport report;
  std::vector<DecisionRecord> records;
};
struct NeedSegments {  // to the node only
  Generation generation;
  std::map<ShardId, std::optional<RankId>> copies;  // from whom they are taken over; empty: fresh memory
};
struct Prepared {
  RankId rank;
  Generation generation;
  Digest plan;
  Step step;
};
struct StepDone {
  DecisionRecord record;
};
struct Finished {
  RankId rank;
  Generation generation;
  Step step;
  Digest digest;
};
struct Failed {
  RankId rank;
  Generation generation;
  Error error;
};

// --- node -> supervisor ---------------------------------------------------------------------------------------------
struct NodeHello {
  Incarnation incarnation;
  NodeId former;
  std::uint32_t slots = 0;
  std::string host, rack;
  bool runs_the_job = false;
};
struct NodeReported {
  Generation generation;
  std::vector<RankReport> left_behind;
};
struct StepHistory {
  std::vector<DecisionRecord> records;
};
struct JobState {
  Generation generation;
  std::optional<Plan> in_force;
  std::vector<job_event::NodeRestated::Rank> living;
  std::vector<RankId> gone;
};
struct RankDown {
  RankId rank;
  std::string why;
  bool expected = false;
};

// --- supervisor -> node; fence, prepare, intend, resume and stop go on to its ranks ---------------------------------
struct Welcome {
  NodeId node;
  std::uint32_t epoch = 0;
  Incarnation supervisor;
};
struct StartRanks {
  std::vector<RankId> ranks;
};
struct Fence {
  Generation generation;
  Step known;
};
struct Prepare {
  Plan plan;
  std::optional<Transition> transition;
};
struct Intend {
  Generation generation;
};
struct Resume {
  Generation generation;
};
struct KillRank {
  RankId rank;
  std::string why;
};
struct Stop {
  std::string why;
};
struct Leave {
  std::string why;
};

// --- node -> rank ---------------------------------------------------------------------------------------------------
struct Segments {
  Generation generation;
  std::shared_ptr<Board> board;
  std::map<ShardId, std::shared_ptr<CopyMemory>> copies;
};

}  // namespace say

struct Message {
  std::variant<say::RankUp, say::RankReported, say::NeedSegments, say::Prepared, say::StepDone, say::Finished,
               say::Failed, say::NodeHello, say::NodeReported, say::StepHistory, say::JobState, say::RankDown,
               say::Welcome, say::StartRanks, say::Fence, say::Prepare, say::Intend, say::Resume, say::KillRank,
               say::Stop, say::Leave, say::Segments>
      what;
};

using Sent = std::shared_ptr<const Message>;

template <class What>
Sent message(What what) {
  return std::make_shared<const Message>(Message{std::move(what)});
}

}  // namespace kintsugi::sim::protocol
