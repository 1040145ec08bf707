// Owns one rank process on this node: starts it, speaks with it over its Unix link, stops or kills it, and says how it
// ended once it is reaped. The process and its link outlive an incarnation.
#pragma once

#include <caf/actor.hpp>

#include <memory>
#include <string>
#include <vector>

#include "actors/process.hpp"
#include "actors/supervised.hpp"
#include "actors/system.hpp"
#include "transport/link/link_service.hpp"

namespace kintsugi::actors {

// What a node process shares among its actors; outlives them.
struct NodeServices {
  ProcessWatcher& processes;
  transport::LinkService& links;
  const Logger& logger;
  const std::string& interface;  // of tensors between nodes; empty: any
  ActorTree& tree;
};

struct RankStart {
  JobId job;
  RankId rank;
  Incarnation incarnation;
  std::uint32_t threads = 1;
  bool ucx_only = false;
};

// --- to the rank supervisor -----------------------------------------------------------------------------------------
struct ToRank {  // a frame for the process, with descriptors
  std::shared_ptr<transport::Frame> frame;
  std::shared_ptr<std::vector<FileDescriptor>> descriptors;  // may be null
};
struct StopRank {
  std::string why;
};
struct KillRank {  // at once: it is of no use
  std::string why;
};

struct SignalRank {  // an injected fault
  int number = 0;
};

// --- to its owner ---------------------------------------------------------------------------------------------------
struct FromRank {
  RankId rank;
  ControlMessage message;
};
struct RankGone {  // the last message
  RankId rank;
  Incarnation incarnation;
  std::string why;
  bool expected = false;
};

// A rank that does not end by itself so long after StopRank is killed.
constexpr Duration kStopGrace = milliseconds(1'000);

caf::actor spawn_rank_supervisor(Place place, NodeServices& services, const RankStart& start);

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::ToRank)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::StopRank)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::KillRank)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::SignalRank)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::FromRank)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::RankGone)
