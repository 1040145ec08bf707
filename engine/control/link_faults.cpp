#include "engine/control/link_faults.hpp"

#include <algorithm>
#include <tuple>

namespace kintsugi {

bool LinkFaults::accuse(const Accusation& a, Instant now) {
  if (a.by == a.accused_node) return false;
  const Pair pair = std::minmax(a.by, a.accused_node);
  auto& ranks = accused_[pair];
  const bool again = std::any_of(ranks.begin(), ranks.end(), [&](const auto& r) { return r.second != a.generation; });
  ranks[a.accused] = a.generation;
  if (const auto last = apart_.find(pair); last != apart_.end()) {
    const Apart& apart = last->second;
    if (now < apart.until) return false;  // it speaks of a generation before that
    if (now > apart.until + apart.time) apart_.erase(last);
  }
  const auto last = apart_.find(pair);
  if (last == apart_.end() && !again) return false;
  const Duration time = last == apart_.end() ? kFirstApart : std::min(last->second.time * 2, kMostApart);
  apart_[pair] = {now + time, time};
  accused_.erase(pair);
  return true;
}

void LinkFaults::down(RankId rank) {
  for (auto& [pair, ranks] : accused_) ranks.erase(rank);
}

void LinkFaults::lost(NodeId node) {
  const auto concerns = [&](const auto& of_pair) {
    return of_pair.first.first == node || of_pair.first.second == node;
  };
  std::erase_if(accused_, concerns);
  std::erase_if(apart_, concerns);
}

NodeSet LinkFaults::left_out(const NodeSet& nodes, const std::function<Loss(NodeId)>& loss, Instant now) const {
  const auto is_in = [&](NodeId node, const NodeSet& out) { return nodes.contains(node) && !out.contains(node); };
  NodeSet out;
  while (true) {
    std::map<NodeId, std::uint32_t> pairs;
    for (const auto& [pair, apart] : apart_) {
      if (now >= apart.until || !is_in(pair.first, out) || !is_in(pair.second, out)) continue;
      ++pairs[pair.first];
      ++pairs[pair.second];
    }
    if (pairs.empty()) return out;
    const auto rank_of = [&](const auto& entry) {
      const Loss l = loss(entry.first);
      return std::tuple(l.loses_state, ~entry.second, l.cells, entry.first);
    };
    const NodeId least = std::min_element(pairs.begin(), pairs.end(), [&](const auto& a, const auto& b) {
                           return rank_of(a) < rank_of(b);
                         })->first;
    out.insert(least);
  }
}

}  // namespace kintsugi
