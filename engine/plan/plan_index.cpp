#include "engine/plan/plan_index.hpp"

#include "base/assert.hpp"
#include "engine/plan/rank_index.hpp"

namespace kintsugi {

// `visit` calls what it is given with the rank and the item, the same ones each time.
template <class Item, class Visit>
PlanIndex::Rows<Item> PlanIndex::collect(const Visit& visit) const {
  Rows<Item> rows{std::vector<std::size_t>(ranks_.size() + 1, 0), {}};
  visit([&](RankId rank, const Item&) { ++rows.first[place(rank) + 1]; });
  for (std::size_t i = 0; i < ranks_.size(); ++i) rows.first[i + 1] += rows.first[i];
  rows.items.resize(rows.first.back());
  std::vector<std::size_t> next(rows.first.begin(), rows.first.end() - 1);
  visit([&](RankId rank, const Item& item) { rows.items[next[place(rank)]++] = item; });
  return rows;
}

PlanIndex::PlanIndex(const Plan& plan) {
  for (const PlanRank& r : plan.ranks) ranks_.push_back(r.rank);
  blocks_ = collect<Block>([&](const auto& take) {
    for (std::uint32_t s = 0; s < plan.stages.size(); ++s) {
      for (const CellBlock& block : plan.stages[s].blocks) take(block.rank, Block{{s}, block.lanes});
    }
  });
  primaries_ = collect<ShardId>([&](const auto& take) {
    for (std::uint32_t s = 0; s < plan.shards.size(); ++s) take(plan.shards[s].primary, ShardId{s});
  });
  replicas_ = collect<ShardId>([&](const auto& take) {
    for (std::uint32_t s = 0; s < plan.shards.size(); ++s) {
      for (const RankId replica : plan.shards[s].replicas) take(replica, ShardId{s});
    }
  });
}

std::size_t PlanIndex::place(RankId rank) const {
  const auto at = place_of(rank, ranks_, [](RankId r) { return r; });
  KINTSUGI_ASSERT_MSG(at.has_value(), "a rank that is no member of the plan");
  return *at;
}

std::uint64_t PlanIndex::cells_of(RankId rank) const {
  std::uint64_t cells = 0;
  for (const Block& block : blocks_of(rank)) cells += block.lanes.count();
  return cells;
}

bool PlanIndex::is_idle(RankId rank) const {
  return blocks_of(rank).empty() && primary_of(rank).empty() && replica_of(rank).empty();
}

}  // namespace kintsugi
