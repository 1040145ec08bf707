// A plan rank by rank: for whoever asks about many ranks. Built in one pass, O(log) an answer; the plan itself is not kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan/plan.hpp"

namespace kintsugi {

class PlanIndex {
 public:
  struct Block {
    StageId stage;
    LaneRange lanes;
    auto operator<=>(const Block&) const = default;
  };

  explicit PlanIndex(const Plan& plan);

  // Of a member (asserted): its blocks by stage, and shards ascending. Valid as long as the index.
  std::span<const Block> blocks_of(RankId rank) const { return blocks_.of(place(rank)); }
  std::span<const ShardId> primary_of(RankId rank) const { return primaries_.of(place(rank)); }
  std::span<const ShardId> replica_of(RankId rank) const { return replicas_.of(place(rank)); }
  std::uint64_t cells_of(RankId rank) const;
  // It works no cell and holds no shard.
  bool is_idle(RankId rank) const;

 private:
  // Items of ranks, one rank after the other.
  template <class Item>
  struct Rows {
    std::vector<std::size_t> first;  // by place of the rank, and the end
    std::vector<Item> items;
    std::span<const Item> of(std::size_t row) const {
      return std::span(items).subspan(first[row], first[row + 1] - first[row]);
    }
  };
  template <class Item, class Visit>
  Rows<Item> collect(const Visit& visit) const;
  std::size_t place(RankId rank) const;

  std::vector<RankId> ranks_;
  Rows<Block> blocks_;
  Rows<ShardId> primaries_, replicas_;
};

}  // namespace kintsugi
