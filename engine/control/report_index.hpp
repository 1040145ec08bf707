// Reports by rank and ranks by node, for decisions over all of them at once. Ranks are numbered as they come and few are
// gone: a table by number has few holes.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "engine/control/counted_ranks.hpp"

namespace kintsugi {

class ReportIndex {
 public:
  explicit ReportIndex(const Reports& reports) {
    if (reports.counted != nullptr) {
      auto at = reports.counted->plan->ranks.begin();
      for (const RankId rank : reports.counted->ranks) {
        while (at->rank < rank) ++at;
        KINTSUGI_ASSERT_MSG(at->rank == rank, "a rank is counted that the plan does not have");
        enter(rank, {at->node, true, true});
      }
    }
    for (const RankReport& report : reports.named) enter(report.rank, {report.node, true, report.alive});
  }
  // Asserts that it said something, or its node did.
  NodeId node_of(RankId rank) const {
    KINTSUGI_ASSERT_MSG(rank.value < said_.size() && said_[rank.value].is_known, "a holder that reported nothing");
    return said_[rank.value].node;
  }
  // It answered for itself.
  bool is_alive(RankId rank) const { return rank.value < said_.size() && said_[rank.value].is_alive; }

 private:
  struct Said {
    NodeId node;
    bool is_known = false;
    bool is_alive = false;
  };
  void enter(RankId rank, Said said) {
    if (said_.size() <= rank.value) said_.resize(std::max<std::size_t>(rank.value + 1, said_.size() * 2));
    KINTSUGI_ASSERT_MSG(!said_[rank.value].is_known, "two reports of one rank");
    said_[rank.value] = said;
  }

  std::vector<Said> said_;  // by rank
};

// Ranks by node; both ascending. Made when somebody asks: most often nobody does.
template <class Member>
class NodeIndex {
 public:
  explicit NodeIndex(std::span<const Member> members) : members_(members) {}
  template <class Visit>
  void for_each_on(NodeId node, const Visit& visit) {
    if (ranks_.empty()) {
      for (const Member& m : members_) ranks_.push_back({m.node, m.rank});
      std::sort(ranks_.begin(), ranks_.end());
    }
    for (auto at = std::lower_bound(ranks_.begin(), ranks_.end(), std::pair(node, RankId{0}));
         at != ranks_.end() && at->first == node; ++at) {
      visit(at->second);
    }
  }

 private:
  std::span<const Member> members_;
  std::vector<std::pair<NodeId, RankId>> ranks_;
};

// A table by number of who is among `ranks`.
class IsAmong {
 public:
  template <class Ranks, class RankOf>
  IsAmong(const Ranks& ranks, const RankOf& rank_of) {
    for (const auto& r : ranks) {
      const RankId rank = rank_of(r);
      if (among_.size() <= rank.value) among_.resize(std::max<std::size_t>(rank.value + 1, among_.size() * 2));
      among_[rank.value] = true;
    }
  }
  bool operator()(RankId rank) const { return rank.value < among_.size() && among_[rank.value]; }

 private:
  std::vector<std::uint8_t> among_;
};

template <class Ranks>
void sort_unique(Ranks& ranks) {
  const auto turns = std::adjacent_find(ranks.begin(), ranks.end(), [](RankId a, RankId b) { return !(a < b); });
  if (turns == ranks.end()) return;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
}

template <class Ranks>
bool has(const Ranks& ranks, RankId rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace kintsugi
