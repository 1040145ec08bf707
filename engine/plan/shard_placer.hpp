// Who holds which shard. Holders of the plan in force stay; what they leave open is placed: everything at first, after a
// change what was held by those who are gone.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/plan/load_tree.hpp"
#include "engine/plan/planner.hpp"

namespace kintsugi {

enum class ShardsKept : std::uint8_t {
  none,
  all,   // holders that are there, have their copy, and, the primary, work a use
  fair,  // of these, what leaves no holder overloaded: somebody is there who has nothing
};

// Deals out open places one after the other, primaries first, by what each member holds so far. A primary is among those
// that work a use of the shard. Replicas, and a primary whose replicas stay, lie on other nodes as far as there are any,
// on other racks first. Among equals it is whoever is not overloaded, then who has a copy, then the least loaded, then the
// lowest rank. A place costs the logarithm of the members, beside one pass over all holders.
class ShardPlacer {
 public:
  // `plan`: with ranks and cells. `copies`: of each shard, the primary's included.
  ShardPlacer(const PlanRequest& request, const Plan& plan, const ModelLayout& layout, std::size_t copies,
              ShardsKept kept);

  // By shard.
  std::vector<ShardHolders> run();
  // Places that were open.
  std::uint64_t placed() const { return placed_; }

 private:
  struct Open {  // what a shard keeps
    std::optional<RankId> primary;
    FewRanks replicas;
  };
  struct Span {
    std::size_t first = 0, end = 0;
  };
  using Spans = ShortList<Span, 8>;
  struct Candidate {
    RankId rank;
    bool is_overloaded = false;
    bool has_copy = false;
    std::int64_t load = 0;
    bool operator<(const Candidate& other) const;
  };

  void arrange_members();
  void arrange_workers();
  std::optional<std::size_t> member_of(RankId rank) const;
  bool has_copy(ShardId shard, RankId rank) const;
  bool works_a_use(const Shard& shard, std::size_t member) const;
  const Spans& stages_of(const Shard& shard) const { return stages_of_group_[shard.group.value]; }

  std::vector<Open> keep();
  // Replicas that share a node with another holder, though there is a node without one, are to lie elsewhere; where
  // somebody is there who has nothing, the same of racks.
  void spread(const Shard& shard, ShardHolders& holders);
  RankId place_primary(const Shard& shard, Open& open);
  RankId place_replica(const Shard& shard, const ShardHolders& holders);
  // Members that share a node or a rack with `holders`, to be avoided as far as possible: first both, then nodes alone, then
  // racks alone, at last nobody.
  enum class Avoid : std::uint8_t { both, nodes, racks, nobody };
  static constexpr Avoid kAvoid[] = {Avoid::both, Avoid::nodes, Avoid::racks, Avoid::nobody};
  Spans avoided(const FewRanks& holders, Avoid what) const;
  Candidate candidate(const Shard& shard, std::size_t member, std::int64_t load, double share) const;

  const PlanRequest& request_;
  const Plan& plan_;
  const ModelLayout& layout_;
  const ShardsKept kept_;
  std::vector<PlanMember> members_;  // that may hold a shard: by rack, node, rank
  std::vector<std::size_t> place_;   // in members_, by rank
  std::vector<Span> rack_, node_;    // those of the same, by place in members_; a node without a rack is one of its own
  std::vector<std::size_t> first_block_;  // by stage, and the end: in `primaries_`
  std::vector<Spans> stages_of_group_;    // by group: in `primaries_`, the stages of its uses
  std::vector<std::size_t> first_of_;     // by place in members_, and the end: in blocks_of_
  std::vector<std::size_t> blocks_of_;    // positions in primaries_
  std::size_t nodes_ = 0, racks_ = 0;
  std::size_t replicas_ = 0;              // of each shard
  double fair_share_ = 0;                 // elements
  std::optional<LoadTree> primaries_;     // by stage and block
  std::optional<LoadTree> replica_load_;  // by place in members_
  std::uint64_t placed_ = 0;
};

}  // namespace kintsugi
