// The processes of a job and the slots they run in. A rank's number is its place in the table: given once, from 0
// upward, and never again. What a rank holds outlives its process on its node, not the loss of the node.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "engine/plan/planner.hpp"

namespace kintsugi {

enum class RankPhase : std::uint8_t {
  starting,  // no hello yet
  up,
  gone,  // given up, but nobody has seen its process end: its slot is taken
  down,  // reaped, or lost with its node
};

class RankTable {
 public:
  void add_node(NodeId node, std::string name, std::string rack, std::uint32_t slots);
  // Its ranks are down and its memory is lost.
  void lose_node(NodeId node);
  // No rank is started there any more.
  void close_node(NodeId node) { nodes_.at(node).closed = true; }
  // One rank less may run there.
  void close_slot(NodeId node) { --nodes_.at(node).slots; }
  bool has_node(NodeId node) const;
  std::uint32_t node_count() const;
  // A process of the job runs there, or may.
  bool has_rank_on(NodeId node) const;
  // Of nodes where ranks may be started.
  std::uint64_t slots() const;
  // That have or had a rank: where a fence must be answered, and where memory may be left.
  std::set<NodeId> nodes_with_ranks() const;

  // Up to `count` new ranks in free slots: one on each node of `first`, then node after node.
  std::vector<PlanRank> start(std::uint64_t count, const std::set<NodeId>& first, Instant now);

  bool knows(RankId rank) const { return rank.value < ranks_.size(); }
  RankPhase state(RankId rank) const { return ranks_.at(rank.value).state; }
  void set(RankId rank, RankPhase state) { ranks_.at(rank.value).state = state; }
  NodeId node_of(RankId rank) const { return ranks_.at(rank.value).node; }
  Instant started(RankId rank) const { return ranks_.at(rank.value).started; }
  PlanMember member(RankId rank) const;
  std::set<RankId> in(RankPhase state) const;
  std::uint64_t count(RankPhase state) const { return in(state).size(); }
  bool all_down() const { return count(RankPhase::down) == ranks_.size(); }

  std::string name_of(NodeId node) const;
  std::string name_of(RankId rank) const;
  std::string names_of(const std::set<RankId>& ranks) const;

  bool operator==(const RankTable&) const = default;

 private:
  struct Node {
    std::string name, rack;
    std::uint32_t slots = 0;
    bool closed = false, lost = false;
    bool operator==(const Node&) const = default;
  };
  struct Rank {
    NodeId node;
    RankPhase state = RankPhase::starting;
    Instant started;
    bool operator==(const Rank&) const = default;
  };

  std::uint32_t free_slots(NodeId node) const;

  std::map<NodeId, Node> nodes_;  // lost ones too: they have names
  std::vector<Rank> ranks_;       // by RankId
};

}  // namespace kintsugi
