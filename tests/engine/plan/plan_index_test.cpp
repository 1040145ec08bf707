#include "engine/plan/plan_index.hpp"

#include <algorithm>

#include "tests/engine/plan/plan_cases.hpp"

namespace kintsugi {
namespace {

TEST(PlanIndex, says_of_every_rank_what_the_plan_says) {
  JobConfig job = testing::small_job(4, 6, 3);
  job.resilience.replicas = 2;
  PlanRequest request{{1}, {1}, {1, 1}, {}};
  for (const std::uint32_t rank : {2U, 3U, 7U, 8U, 20U}) request.members.push_back({{rank}, {rank}});
  request.members[2].idle = true;
  const Plan plan = make_plan(request, job, ModelLayout(job.model)).value();
  const PlanIndex index(plan);
  for (const PlanRank& r : plan.ranks) {
    EXPECT_EQ(index.cells_of(r.rank), plan.cells_of(r.rank));
    EXPECT_EQ(index.is_idle(r.rank), plan.is_idle(r.rank));
    for (const PlanIndex::Block& block : index.blocks_of(r.rank)) {
      EXPECT_EQ(block.lanes, plan.lanes_of(block.stage, r.rank));
    }
    std::vector<ShardId> primary, replica;
    for (std::uint32_t s = 0; s < plan.shards.size(); ++s) {
      if (plan.shards[s].primary == r.rank)
        primary.push_back({s});
      else if (plan.shards[s].has(r.rank))
        replica.push_back({s});
    }
    EXPECT_TRUE(std::ranges::equal(index.primary_of(r.rank), primary));
    EXPECT_TRUE(std::ranges::equal(index.replica_of(r.rank), replica));
  }
  EXPECT_TRUE(index.is_idle({7}));
  EXPECT_EQ(plan.idle_ranks(), std::vector<RankId>{{7}});
}

}  // namespace
}  // namespace kintsugi
