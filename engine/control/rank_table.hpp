// The processes of a job and the slots they run in. A rank's number is its place in the table: given once, from 0
// upward, and never again. What a rank holds outlives its process on its node, not the loss of the node.
//
// A job hears of its ranks one by one, and what it asks the table at every word must not cost a pass over all of them:
// ranks are kept by phase and by node, and slots are counted as they change.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>
#include "base/flat_set.hpp"

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
  void add_node(NodeId node, std::string name, const std::string& rack, std::uint32_t slots);
  // Its ranks are down and its memory is lost.
  void lose_node(NodeId node);
  // No rank is started there while it is closed.
  void close_node(NodeId node);
  // One rank less may run there.
  void close_slot(NodeId node);
  void open_node(NodeId node);
  bool has_node(NodeId node) const;
  std::uint32_t node_count() const { return node_count_; }
  // A process of the job runs there, or may.
  bool has_rank_on(NodeId node) const { return !ranks_on(node).empty(); }
  // Those. Empty for a node that is not known.
  const RankSet& ranks_on(NodeId node) const;
  // Of nodes where ranks may be started.
  std::uint64_t slots() const { return slots_; }
  // That have or had a rank: where a fence must be answered, and where memory may be left.
  const NodeSet& nodes_with_ranks() const { return nodes_with_ranks_; }

  // Up to `count` new ranks in free slots: one on each node of `first`, then node after node.
  std::vector<PlanRank> start(std::uint64_t count, const NodeSet& first, Instant now);

  // The numbers up to `next_rank` are given; nobody knows whether any of them lives, nor where.
  void adopt(RankId next_rank);
  // Such a one is found. False: it is no such one.
  bool place(RankId rank, NodeId node, RankPhase state, Instant now);
  RankId next_rank() const { return {static_cast<std::uint32_t>(ranks_.size())}; }

  bool knows(RankId rank) const { return rank.value < ranks_.size(); }
  RankPhase state(RankId rank) const { return ranks_.at(rank.value).state; }
  void set(RankId rank, RankPhase state);
  NodeId node_of(RankId rank) const { return ranks_.at(rank.value).node; }
  Instant started(RankId rank) const { return ranks_.at(rank.value).started; }
  PlanMember member(RankId rank) const;
  // Changes with every set(): copy it to change ranks on the way.
  const RankSet& in(RankPhase state) const { return by_phase_[static_cast<std::size_t>(state)]; }
  std::uint64_t count(RankPhase state) const { return in(state).size(); }
  bool all_down() const { return count(RankPhase::down) == ranks_.size(); }

  std::string name_of(NodeId node) const;
  std::string name_of(RankId rank) const;
  std::string names_of(const RankSet& ranks) const;

  bool operator==(const RankTable&) const = default;

 private:
  struct Node {
    std::string name;
    RackId rack;
    std::uint32_t slots = 0;
    bool closed = false, lost = false;
    bool had_ranks = false;
    RankSet ranks;  // that are not down
    std::uint32_t open_slots() const { return lost || closed ? 0 : slots; }
    std::uint32_t free_slots() const;
    bool operator==(const Node&) const = default;
  };
  struct Rank {
    NodeId node;  // 0: of a former supervisor, not found
    RankPhase state = RankPhase::down;
    Instant started;
    bool operator==(const Rank&) const = default;
  };

  // Changes a node, and what is counted over nodes.
  template <class Change>
  void change(NodeId node, const Change& how);
  void enter(RankId rank, RankPhase state);

  const Node* find(NodeId node) const;
  Node& at(NodeId node);
  const Node& at(NodeId node) const;

  NodeSet known_;            // lost ones too: they have names
  std::vector<Node> nodes_;  // by place in known_
  std::map<std::string, RackId> racks_;
  std::vector<Rank> ranks_;  // by RankId
  // Of the above.
  std::array<RankSet, 4> by_phase_;
  NodeSet nodes_with_ranks_, with_free_slots_;
  std::uint64_t slots_ = 0;
  std::uint32_t node_count_ = 0;
};

}  // namespace kintsugi
