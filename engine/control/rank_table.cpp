#include "engine/control/rank_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/assert.hpp"

namespace kintsugi {

void RankTable::add_node(NodeId node, std::string name, std::string rack, std::uint32_t slots) {
  nodes_[node] = {std::move(name), std::move(rack), slots, false, false};
}

void RankTable::lose_node(NodeId node) {
  KINTSUGI_ASSERT(has_node(node));
  nodes_[node].lost = true;
  for (Rank& rank : ranks_) {
    if (rank.node == node) rank.state = RankPhase::down;  // by its parent-death signal
  }
}

bool RankTable::has_node(NodeId node) const {
  const auto found = nodes_.find(node);
  return found != nodes_.end() && !found->second.lost;
}

std::uint32_t RankTable::node_count() const {
  return static_cast<std::uint32_t>(
      std::count_if(nodes_.begin(), nodes_.end(), [](const auto& n) { return !n.second.lost; }));
}

bool RankTable::has_rank_on(NodeId node) const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [&](const Rank& r) { return r.node == node && r.state != RankPhase::down; });
}

std::uint64_t RankTable::slots() const {
  std::uint64_t slots = 0;
  for (const auto& [id, node] : nodes_) slots += node.lost || node.closed ? 0 : node.slots;
  return slots;
}

std::set<NodeId> RankTable::nodes_with_ranks() const {
  std::set<NodeId> nodes;
  for (const Rank& rank : ranks_) {
    if (has_node(rank.node)) nodes.insert(rank.node);
  }
  return nodes;
}

std::uint32_t RankTable::free_slots(NodeId id) const {
  const Node& node = nodes_.at(id);
  if (node.lost || node.closed) return 0;
  const auto taken = std::count_if(ranks_.begin(), ranks_.end(),
                                   [&](const Rank& r) { return r.node == id && r.state != RankPhase::down; });
  return node.slots - std::min(node.slots, static_cast<std::uint32_t>(taken));
}

std::vector<PlanRank> RankTable::start(std::uint64_t count, const std::set<NodeId>& first, Instant now) {
  std::vector<PlanRank> started;
  const auto start_on = [&](NodeId node) {
    if (started.size() == count || free_slots(node) == 0) return false;
    started.push_back({{static_cast<std::uint32_t>(ranks_.size())}, node});
    ranks_.push_back({node, RankPhase::starting, now});
    return true;
  };
  for (const NodeId node : first) start_on(node);
  for (const auto& [id, node] : nodes_) {
    while (start_on(id)) {
    }
  }
  return started;
}

PlanMember RankTable::member(RankId rank) const {
  return {rank, node_of(rank), nodes_.at(node_of(rank)).rack};
}

std::set<RankId> RankTable::in(RankPhase state) const {
  std::set<RankId> ranks;
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].state == state) ranks.insert({r});
  }
  return ranks;
}

std::string RankTable::name_of(NodeId node) const {
  return "node " + nodes_.at(node).name;
}

std::string RankTable::name_of(RankId rank) const {
  return fmt::format("rank {} on {}", rank.value, name_of(node_of(rank)));
}

std::string RankTable::names_of(const std::set<RankId>& ranks) const {
  std::string names;
  for (const RankId rank : ranks) names += (names.empty() ? "" : ", ") + name_of(rank);
  return names;
}

}  // namespace kintsugi
