#include "engine/plan/planner.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include "base/philox.hpp"
#include "engine/plan/partition.hpp"
#include "tests/engine/plan/plan_cases.hpp"
#include "tests/engine/plan/planner_reference.hpp"

namespace kintsugi {
namespace {

using testing::plan_for;
using testing::small_job;

TEST(Planner, a_balanced_partition_has_the_least_maximum_of_all_cuts) {
  const std::vector<double> costs = {5, 1, 1, 1, 8, 2, 2};
  for (std::uint32_t parts = 1; parts <= costs.size(); ++parts) {
    const std::vector<std::uint32_t> ends = balanced_partition(costs, parts);
    ASSERT_EQ(ends.size(), parts);
    EXPECT_EQ(ends.back(), costs.size());
    double most = 0;
    std::uint32_t first = 0;
    for (const std::uint32_t end : ends) {
      ASSERT_GT(end, first);
      most = std::max(most, std::accumulate(costs.begin() + first, costs.begin() + end, 0.0));
      first = end;
    }
    // Every other cut, as a bit mask of boundaries.
    for (unsigned mask = 0; mask < (1U << (costs.size() - 1)); ++mask) {
      if (static_cast<std::uint32_t>(std::popcount(mask)) + 1 != parts) continue;
      double worst = 0, sum = 0;
      for (std::size_t i = 0; i < costs.size(); ++i) {
        sum += costs[i];
        if (i + 1 == costs.size() || (mask >> i & 1U) != 0) {
          worst = std::max(worst, sum);
          sum = 0;
        }
      }
      EXPECT_LE(most, worst);
    }
  }
}

TEST(Planner, every_cell_has_one_rank_every_shard_one_primary_that_uses_it_and_no_rank_is_idle) {
  for (const std::int64_t stages : {1, 2, 3, 4}) {
    for (const std::int64_t lanes : {1, 3, 8}) {
      const JobConfig job = small_job(4, lanes, stages);
      const ModelLayout layout(job.model);
      for (std::uint32_t ranks = 1; ranks <= stages * lanes; ++ranks) {
        const Plan plan = plan_for(job, ranks);
        std::uint64_t cells = 0;
        for (std::uint32_t r = 0; r < ranks; ++r) {
          EXPECT_GT(plan.cells_of({r}), 0U) << ranks << " ranks " << stages << " stages " << lanes << " lanes";
          cells += plan.cells_of({r});
        }
        EXPECT_EQ(cells, static_cast<std::uint64_t>(stages * lanes));
        ASSERT_EQ(plan.shards.size(), layout.shards().size());
        for (const Shard& shard : layout.shards()) {
          std::vector<RankId> users;
          for (const LayerId use : layout.group(shard.group).uses) {
            for (const RankId r : plan.ranks_of_layer(use)) users.push_back(r);
          }
          EXPECT_NE(std::find(users.begin(), users.end(), plan.primary_of(shard.id)), users.end());
        }
        EXPECT_EQ(plan.stages.front().layers.first, 0U);
        EXPECT_EQ(plan.stages.back().layers.end, layout.layer_count());
      }
    }
  }
}

TEST(Planner, cells_are_cut_evenly_where_whole_stages_would_leave_ranks_waiting) {
  const Plan plan = plan_for(small_job(4, 8, 2), 3);  // whole stages: 8 + 4 + 4; an even cut: at most 6
  std::uint64_t most = 0;
  for (std::uint32_t r = 0; r < 3; ++r) most = std::max(most, plan.cells_of({r}));
  EXPECT_LE(most, 6U);
  EXPECT_NE(plan.reason.find("cells cut evenly"), std::string::npos);
}

TEST(Planner, more_ranks_than_cells_are_refused_with_what_to_do) {
  const JobConfig job = small_job(2, 2, 1);
  const PlanRequest request{{1}, {1}, {1, 1}, {{{0}, {1}}, {{1}, {1}}, {{2}, {1}}}};
  const Result<Plan> plan = make_plan(request, job, ModelLayout(job.model));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().action, ErrorAction::tell_user);
  EXPECT_NE(plan.error().message.find("at most 2 ranks"), std::string::npos) << plan.error().message;
}

// Members whose numbers have holes: ranks 3, 5, 8, ... on `nodes` nodes in turn.
PlanRequest survivors(std::uint32_t ranks, std::uint32_t nodes) {
  PlanRequest request{{1}, {1}, {1, 4}, {}};
  std::uint32_t id = 3;
  for (std::uint32_t r = 0; r < ranks; ++r, id += 2 + r % 2) request.members.push_back({{id}, {r % nodes}});
  return request;
}

TEST(Planner, replicas_are_other_members_on_other_nodes_as_far_as_there_are_any) {
  for (const std::int64_t replicas : {1, 2, 3}) {
    for (std::uint32_t nodes = 1; nodes <= 3; ++nodes) {
      for (std::uint32_t ranks = nodes; ranks <= 6; ++ranks) {
        JobConfig job = small_job(4, 8, 2);
        job.resilience.replicas = replicas;
        const PlanRequest request = survivors(ranks, nodes);
        const Plan plan = make_plan(request, job, ModelLayout(job.model)).value();
        const auto wide = static_cast<std::uint32_t>(replicas);
        EXPECT_EQ(plan.failure_domains(), std::min(nodes, wide)) << ranks << " ranks " << nodes << " nodes";
        for (const ShardHolders& holders : plan.shards) {
          std::set<RankId> all(holders.replicas.begin(), holders.replicas.end());
          all.insert(holders.primary);
          EXPECT_EQ(all.size(), std::min(ranks, wide));
          for (const RankId rank : all) EXPECT_TRUE(plan.has(rank));
        }
      }
    }
  }
}

TEST(Planner, replicas_lie_on_other_racks_first) {
  PlanRequest request = survivors(6, 3);
  for (PlanMember& member : request.members) member.rack = {member.node == NodeId{2} ? 2U : 1U};
  JobConfig job = small_job(4, 8, 2);
  job.resilience.replicas = 2;
  const Plan plan = make_plan(request, job, ModelLayout(job.model)).value();
  for (const ShardHolders& holders : plan.shards) {
    EXPECT_NE(plan.node_of(holders.primary) == NodeId{2}, plan.node_of(holders.replicas[0]) == NodeId{2});
  }
}

TEST(Planner, a_loss_moves_only_the_shards_of_which_a_copy_is_lost) {
  JobConfig job = small_job(4, 8, 1);
  job.resilience.replicas = 2;
  const ModelLayout layout(job.model);
  PlanRequest request = survivors(6, 6);
  const Plan before = make_plan(request, job, layout).value();
  const RankId lost = request.members[2].rank;
  request.members.erase(request.members.begin() + 2);
  for (const ShardHolders& holders : before.shards) {
    std::vector<RankId> copies = holders.replicas;
    copies.push_back(holders.primary);
    std::erase(copies, lost);
    request.copies.push_back(copies);
  }
  const Plan after = make_plan(request, job, layout).value();
  std::size_t missing = 0, moved = 0;
  for (std::uint32_t s = 0; s < after.shards.size(); ++s) {
    missing += before.shards[s].has(lost) ? 1 : 0;
    std::vector<RankId> holders = after.shards[s].replicas;
    holders.push_back(after.shards[s].primary);
    for (const RankId rank : holders) moved += before.shards[s].has(rank) ? 0 : 1;
  }
  // Balance may cost a few moves more than the copies that are missing.
  EXPECT_GE(moved, missing);
  EXPECT_LE(moved, missing + after.shards.size() / 4);
}

TEST(Planner, whatever_is_asked_for_from_nothing_is_planned_as_by_definition) {
  const PhiloxKey key = philox_key(11);
  std::uint64_t drawn = 0;
  const auto draw = [&](std::uint64_t below) {
    return static_cast<std::uint32_t>(philox_u64(key, drawn++, 0) % below);
  };
  for (int round = 0; round < 2'000; ++round) {
    JobConfig job = small_job(4, 1 + draw(12), 1 + draw(4), 1, draw(2) == 0);
    job.resilience.replicas = 1 + draw(3);
    const ModelLayout layout(job.model);
    PlanRequest request{{1}, {1}, {1, 4}, {}};
    const std::uint32_t most = static_cast<std::uint32_t>(job.batch.lanes * *job.parallel.stages);
    const std::uint32_t ranks = 1 + draw(std::min(most, 12U)), nodes = 1 + draw(6), racks = 1 + draw(4);
    for (std::uint32_t r = 0, id = draw(3); r < ranks; ++r, id += 1 + draw(2)) {
      const std::uint32_t node = draw(nodes), rack = node % racks;
      request.members.push_back({{id}, {node}, RackId{rack}, r > 0 && draw(6) == 0});
    }
    for (std::size_t s = 0; s < layout.shards().size() && round % 3 > 0; ++s) {
      request.copies.emplace_back();
      for (const PlanMember& m : request.members) {
        if (draw(3) == 0) request.copies.back().push_back(m.rank);
      }
    }
    const Plan plan = make_plan(request, job, layout).value();
    ASSERT_EQ(plan, testing::reference_plan(request, job, layout).value()) << "round " << round;
  }
}

TEST(Planner, the_same_request_gives_the_same_digest_and_another_generation_another) {
  const JobConfig job = small_job(4, 8, 2);
  Plan plan = plan_for(job, 5);
  EXPECT_EQ(plan.digest(), plan_for(job, 5).digest());
  const Digest before = plan.digest();
  plan.generation.counter += 1;
  EXPECT_NE(plan.digest(), before);
}

}  // namespace
}  // namespace kintsugi
