#include "engine/control/rank_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/assert.hpp"
#include "engine/plan/rank_index.hpp"

namespace kintsugi {

std::uint32_t RankTable::Node::free_slots() const {
  return open_slots() - std::min(open_slots(), static_cast<std::uint32_t>(ranks.size()));
}

// Nodes are numbered as they come, and most of them are of this job.
const RankTable::Node* RankTable::find(NodeId node) const {
  const std::vector<NodeId>& known = known_.items();
  const auto place = place_of(node, known, [](NodeId n) { return n; });
  return place ? &nodes_[*place] : nullptr;
}

const RankTable::Node& RankTable::at(NodeId node) const {
  const Node* const found = find(node);
  KINTSUGI_ASSERT_MSG(found != nullptr, "a node that the job does not know");
  return *found;
}

RankTable::Node& RankTable::at(NodeId node) {
  return const_cast<Node&>(std::as_const(*this).at(node));
}

template <class Change>
void RankTable::change(NodeId id, const Change& how) {
  Node& node = at(id);
  slots_ -= node.open_slots();
  node_count_ -= node.lost ? 0 : 1;
  how(node);
  slots_ += node.open_slots();
  node_count_ += node.lost ? 0 : 1;
  const auto list = [&](NodeSet& nodes, bool is_one) {
    if (is_one)
      nodes.insert(id);
    else
      nodes.erase(id);
  };
  list(with_free_slots_, node.free_slots() > 0);
  list(nodes_with_ranks_, node.had_ranks && !node.lost);
}

void RankTable::add_node(NodeId id, std::string name, const std::string& rack, std::uint32_t slots) {
  if (known_.insert(id)) {
    const auto place = std::lower_bound(known_.begin(), known_.end(), id) - known_.begin();
    nodes_.insert(nodes_.begin() + place, Node{});
    ++node_count_;
  }
  RackId number;
  if (!rack.empty())
    number = racks_.try_emplace(rack, RackId{static_cast<std::uint32_t>(racks_.size() + 1)}).first->second;
  change(id, [&](Node& node) {
    node.name = std::move(name);
    node.rack = number;
    node.slots = slots;
    node.closed = node.lost = false;
  });
}

void RankTable::lose_node(NodeId id) {
  KINTSUGI_ASSERT(has_node(id));
  const RankSet ranks = ranks_on(id);
  for (const RankId rank : ranks) set(rank, RankPhase::down);  // by its parent-death signal
  change(id, [](Node& node) { node.lost = true; });
}

void RankTable::close_node(NodeId id) {
  change(id, [](Node& node) { node.closed = true; });
}

void RankTable::close_slot(NodeId id) {
  change(id, [](Node& node) { --node.slots; });
}

void RankTable::open_node(NodeId id) {
  change(id, [](Node& node) { node.closed = false; });
}

bool RankTable::has_node(NodeId node) const {
  const Node* const found = find(node);
  return found != nullptr && !found->lost;
}

const RankSet& RankTable::ranks_on(NodeId node) const {
  static const RankSet kNobody;
  const Node* const found = find(node);
  return found == nullptr ? kNobody : found->ranks;
}

std::vector<PlanRank> RankTable::start(std::uint64_t count, const NodeSet& first, Instant now) {
  std::vector<PlanRank> started;
  const auto start_on = [&](NodeId node) {
    if (started.size() == count || !with_free_slots_.contains(node)) return;
    const RankId rank = next_rank();
    started.push_back({rank, node});
    ranks_.push_back({node, RankPhase::down, now});
    enter(rank, RankPhase::starting);
  };
  for (const NodeId node : first) start_on(node);
  while (started.size() < count && !with_free_slots_.empty()) start_on(*with_free_slots_.begin());
  return started;
}

void RankTable::adopt(RankId next_rank) {
  KINTSUGI_ASSERT(ranks_.empty());
  ranks_.resize(next_rank.value);
  RankSet& down = by_phase_[static_cast<std::size_t>(RankPhase::down)];
  for (std::uint32_t r = 0; r < next_rank.value; ++r) down.insert({r});
}

bool RankTable::place(RankId rank, NodeId node, RankPhase state, Instant now) {
  if (!knows(rank) || node_of(rank) != NodeId{}) return false;
  ranks_[rank.value] = {node, RankPhase::down, now};
  set(rank, state);
  return true;
}

void RankTable::set(RankId rank, RankPhase state) {
  by_phase_[static_cast<std::size_t>(ranks_.at(rank.value).state)].erase(rank);
  enter(rank, state);
}

// It is in no phase so far.
void RankTable::enter(RankId rank, RankPhase state) {
  Rank& mine = ranks_.at(rank.value);
  mine.state = state;
  by_phase_[static_cast<std::size_t>(state)].insert(rank);
  change(mine.node, [&](Node& node) {
    node.had_ranks = true;
    if (state == RankPhase::down)
      node.ranks.erase(rank);
    else
      node.ranks.insert(rank);
  });
}

PlanMember RankTable::member(RankId rank) const {
  return {rank, node_of(rank), at(node_of(rank)).rack};
}

std::string RankTable::name_of(NodeId node) const {
  return "node " + at(node).name;
}

std::string RankTable::name_of(RankId rank) const {
  return fmt::format("rank {} on {}", rank.value, name_of(node_of(rank)));
}

std::string RankTable::names_of(const RankSet& ranks) const {
  std::string names;
  for (const RankId rank : ranks) names += (names.empty() ? "" : ", ") + name_of(rank);
  return names;
}

}  // namespace kintsugi
