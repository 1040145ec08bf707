#include "engine/plan/plan_changes.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/assert.hpp"

namespace kintsugi {

namespace {

void keep_members(std::vector<RankId>& ranks, const Plan& plan) {
  std::erase_if(ranks, [&](RankId rank) { return !plan.has(rank); });
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
}

}  // namespace

PlanChanges changes_between(const Plan& before, const Plan& after) {
  KINTSUGI_ASSERT(before.stages.size() == after.stages.size() && before.shards.size() == after.shards.size());
  PlanChanges changes;
  for (std::size_t s = 0; s < after.stages.size(); ++s) {
    // Both in lane order: blocks that are in one of them only.
    const auto by_lane = [](const CellBlock& a, const CellBlock& b) {
      return std::tie(a.lanes, a.rank) < std::tie(b.lanes, b.rank);
    };
    std::vector<CellBlock> different;
    std::set_symmetric_difference(before.stages[s].blocks.begin(), before.stages[s].blocks.end(),
                                  after.stages[s].blocks.begin(), after.stages[s].blocks.end(),
                                  std::back_inserter(different), by_lane);
    for (const CellBlock& block : different) changes.workers.push_back(block.rank);
  }
  for (std::size_t s = 0; s < after.shards.size(); ++s) {
    const ShardHolders &was = before.shards[s], &is = after.shards[s];
    if (was == is) continue;
    ++changes.shards;
    if (was.primary != is.primary) changes.holders.insert(changes.holders.end(), {was.primary, is.primary});
    for (const auto* of : {&was, &is}) {
      const FewRanks& others = (of == &was ? is : was).replicas;
      std::copy_if(of->replicas.begin(), of->replicas.end(), std::back_inserter(changes.holders),
                   [&](RankId rank) { return std::find(others.begin(), others.end(), rank) == others.end(); });
    }
  }
  keep_members(changes.workers, after);
  keep_members(changes.holders, after);
  return changes;
}

}  // namespace kintsugi
