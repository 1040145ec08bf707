#include "engine/control/counted_ranks.hpp"

#include <algorithm>
#include <tuple>

#include "base/assert.hpp"
#include "engine/plan/plan_index.hpp"

namespace kintsugi {

bool CountedRanks::says_as(const CountedRanks& other) const {
  const auto words = [](const CountedRanks& c) {
    return std::tie(c.plan, c.version, c.updates, c.digests, c.record, c.under_way);
  };
  return words(*this) == words(other);
}

std::vector<RankReport> unfold(const CountedRanks& counted) {
  const PlanIndex index(*counted.plan);
  std::vector<RankReport> reports;
  reports.reserve(counted.ranks.size());
  for (const RankId rank : counted.ranks) {
    RankReport& report = reports.emplace_back();
    report.rank = rank;
    report.node = counted.plan->node_of(rank);
    report.record = counted.record;
    report.sums.step = counted.under_way;
    for (const auto shards : {index.primary_of(rank), index.replica_of(rank)}) {
      for (const ShardId shard : shards) {
        report.copies.push_back({shard, counted.version, counted.updates, counted.digests->at(shard.value)});
      }
    }
    for (const KeptSum& kept : counted.sums) {
      if (kept.rank == rank) report.sums.sums.push_back(kept.sum);
    }
  }
  if (!reports.empty()) reports.front().sums.begun = counted.begun;
  return reports;
}

}  // namespace kintsugi
