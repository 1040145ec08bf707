// Reports by rank and ranks by node, for decisions over all of them at once.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "engine/control/recovery.hpp"
#include "engine/plan/rank_index.hpp"

namespace kintsugi {

class ReportIndex {
 public:
  explicit ReportIndex(std::span<const RankReport> reports) {
    for (const RankReport& report : reports) reports_.push_back(&report);
    std::sort(reports_.begin(), reports_.end(), [](const auto* a, const auto* b) { return a->rank < b->rank; });
    const auto twice = std::adjacent_find(reports_.begin(), reports_.end(),
                                          [](const auto* a, const auto* b) { return a->rank == b->rank; });
    KINTSUGI_ASSERT_MSG(twice == reports_.end(), "two reports of one rank");
  }
  // Null: it said nothing.
  const RankReport* find(RankId rank) const {
    const auto at = place_of(rank, reports_, [](const RankReport* r) { return r->rank; });
    return at ? reports_[*at] : nullptr;
  }
  const RankReport& of(RankId rank) const {
    const RankReport* const report = find(rank);
    KINTSUGI_ASSERT_MSG(report != nullptr, "a holder that reported nothing");
    return *report;
  }
  bool is_alive(RankId rank) const {
    const RankReport* const report = find(rank);
    return report != nullptr && report->alive;
  }

 private:
  std::vector<const RankReport*> reports_;  // by rank
};

// Ranks by node; both ascending.
class NodeIndex {
 public:
  template <class Members>
  explicit NodeIndex(const Members& members) {
    for (const auto& m : members) ranks_.push_back({m.node, m.rank});
    std::sort(ranks_.begin(), ranks_.end());
  }
  template <class Visit>
  void for_each_on(NodeId node, const Visit& visit) const {
    for (auto at = std::lower_bound(ranks_.begin(), ranks_.end(), std::pair(node, RankId{0}));
         at != ranks_.end() && at->first == node; ++at) {
      visit(at->second);
    }
  }

 private:
  std::vector<std::pair<NodeId, RankId>> ranks_;
};

inline void sort_unique(std::vector<RankId>& ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
}

inline bool has(const std::vector<RankId>& ranks, RankId rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace kintsugi
