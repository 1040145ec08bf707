// A plan after a change: what stays, who takes what is left open, and that it is as good as a plan from nothing.
#include <algorithm>
#include <map>
#include <set>

#include "base/philox.hpp"
#include "engine/plan/cell_line.hpp"
#include "engine/plan/plan_changes.hpp"
#include "tests/engine/plan/plan_cases.hpp"

namespace kintsugi {
namespace {

using testing::small_job;

// Ranks 0.. on nodes of their own, two copies of every shard.
class RepairTest : public ::testing::Test {
 protected:
  void begin(std::int64_t lanes, std::int64_t stages, std::uint32_t ranks, std::uint32_t nodes_of_rack = 0) {
    job_ = small_job(4, lanes, stages);
    job_.resilience.replicas = 2;
    layout_.emplace(job_.model);
    request_ = {{1}, {1}, {1, 1}, {}};
    for (std::uint32_t r = 0; r < ranks; ++r) {
      request_.members.push_back({{r}, {r}, RackId{nodes_of_rack == 0 ? 0 : 1 + r / nodes_of_rack}});
    }
    next_ = ranks;
    plan_ = make_plan(request_, job_, *layout_).value();
  }
  void lose(std::uint32_t rank) {
    std::erase_if(request_.members, [&](const PlanMember& m) { return m.rank == RankId{rank}; });
  }
  void join(std::uint32_t node) { request_.members.push_back({{next_++}, {node}}); }

  // With the copies that are left.
  void repair() {
    before_ = plan_;
    ++request_.generation.counter;
    request_.copies.clear();
    for (const ShardHolders& holders : before_.shards) {
      request_.copies.emplace_back();
      for (const PlanMember& m : request_.members) {
        if (holders.has(m.rank)) request_.copies.back().push_back(m.rank);
      }
    }
    request_.in_force = &before_;
    plan_ = make_plan(request_, job_, *layout_).value();
    changes_ = changes_between(before_, plan_);
  }
  double busiest(const Plan& plan) const {
    CellLine line{{}, plan.lanes};
    line.stage_costs.assign(plan.stages.size(), 1.0);
    return busiest_load(line, *pieces_of(plan));
  }
  // Copies that members do not have yet.
  std::uint64_t moved() const {
    std::uint64_t moves = 0;
    for (std::uint32_t s = 0; s < plan_.shards.size(); ++s) {
      std::vector<RankId> holders = plan_.shards[s].replicas;
      holders.push_back(plan_.shards[s].primary);
      for (const RankId r : holders) moves += before_.shards[s].has(r) ? 0 : 1;
    }
    return moves;
  }
  void expect_sound() const {
    for (std::uint32_t s = 0; s < plan_.stages.size(); ++s) {
      std::uint32_t lane = 0;
      std::set<RankId> ranks;
      for (const CellBlock& block : plan_.stages[s].blocks) {
        ASSERT_TRUE(plan_.has(block.rank));
        ASSERT_TRUE(ranks.insert(block.rank).second) << "one block in a stage";
        ASSERT_EQ(block.lanes.first, lane);
        ASSERT_GT(block.lanes.end, lane);
        lane = block.lanes.end;
      }
      ASSERT_EQ(lane, plan_.lanes);
    }
    for (const PlanMember& m : request_.members) {
      ASSERT_EQ(plan_.cells_of(m.rank) > 0, !m.idle) << "rank " << m.rank.value;
      ASSERT_TRUE(!m.idle || plan_.is_idle(m.rank));
    }
    const auto workers =
        std::count_if(request_.members.begin(), request_.members.end(), [](const PlanMember& m) { return !m.idle; });
    for (const Shard& shard : layout_->shards()) {
      const ShardHolders& holders = plan_.shards[shard.id.value];
      std::set<RankId> users;
      for (const LayerId use : layout_->group(shard.group).uses) {
        for (const RankId r : plan_.ranks_of_layer(use)) users.insert(r);
      }
      ASSERT_TRUE(users.contains(holders.primary));
      std::set<RankId> all(holders.replicas.begin(), holders.replicas.end());
      all.insert(holders.primary);
      ASSERT_EQ(all.size(), std::min<std::size_t>(workers, job_.resilience.replicas));
      ASSERT_EQ(holders.replicas.size() + 1, all.size());
      for (const RankId r : all) ASSERT_TRUE(plan_.has(r));
    }
  }

  JobConfig job_;
  std::optional<ModelLayout> layout_;
  PlanRequest request_;
  std::uint32_t next_ = 0;
  Plan before_, plan_;
  PlanChanges changes_;
};

TEST_F(RepairTest, nothing_changes_where_nobody_is_gone) {
  begin(8, 2, 8);
  repair();
  EXPECT_TRUE(changes_.workers.empty());
  EXPECT_EQ(changes_.shards, 0U);
  EXPECT_NE(plan_.reason.find("repaired"), std::string::npos) << plan_.reason;
}

TEST_F(RepairTest, one_neighbour_takes_the_lane_of_one_that_is_gone_and_the_rest_stays) {
  begin(16, 4, 64);
  lose(21);
  repair();
  expect_sound();
  EXPECT_EQ(changes_.workers.size(), 1U);
  EXPECT_EQ(busiest(plan_), 2.0);
  for (std::uint32_t s = 0; s < plan_.shards.size(); ++s) {
    EXPECT_EQ(before_.shards[s].has({21}), before_.shards[s] != plan_.shards[s]);
  }
}

TEST_F(RepairTest, lanes_are_shared_out_among_as_many_neighbours_as_it_takes_and_no_more) {
  begin(64, 2, 16);  // eight lanes each
  lose(3);
  repair();
  expect_sound();
  EXPECT_LE(busiest(plan_), 10.0);
  EXPECT_EQ(busiest(plan_), 10.0) << "64 lanes among seven: ten and nines";
  EXPECT_LE(changes_.workers.size(), 7U);
  for (const RankId rank : changes_.workers) EXPECT_LT(rank.value, 8U) << "of the same stage";
}

TEST_F(RepairTest, a_newcomer_takes_exactly_the_place_of_one_that_is_gone_on_its_node_first) {
  begin(16, 4, 64);
  lose(21);
  lose(40);
  join(40);
  join(99);
  repair();
  expect_sound();
  EXPECT_EQ(changes_.workers, (std::vector<RankId>{{64}, {65}}));
  for (std::uint32_t s = 0; s < 4; ++s) {
    EXPECT_EQ(plan_.lanes_of({s}, {64}), before_.lanes_of({s}, {40}));
    EXPECT_EQ(plan_.lanes_of({s}, {65}), before_.lanes_of({s}, {21}));
  }
}

TEST_F(RepairTest, who_fills_the_gap_later_takes_back_what_the_neighbours_took) {
  begin(64, 2, 32);  // four lanes each
  lose(10);
  repair();
  EXPECT_EQ(busiest(plan_), 5.0);
  join(10);
  repair();
  expect_sound();
  EXPECT_EQ(busiest(plan_), 4.0);
  EXPECT_LE(changes_.workers.size(), 5U);
  EXPECT_GT(plan_.cells_of({32}), 0U);
}

TEST_F(RepairTest, when_a_whole_stage_is_gone_its_neighbours_on_the_line_take_it) {
  begin(8, 4, 4);
  lose(2);
  repair();
  expect_sound();
  EXPECT_EQ(busiest(plan_), 11.0) << plan_.reason;
  EXPECT_NE(plan_.reason.find("repaired"), std::string::npos) << plan_.reason;
}

TEST_F(RepairTest, when_most_of_a_stage_is_gone_members_of_another_take_their_places) {
  begin(16, 2, 8);  // four lanes each
  for (const std::uint32_t rank : {0U, 1U, 2U}) lose(rank);
  repair();
  expect_sound();
  EXPECT_LE(busiest(plan_), 8.0) << plan_.reason;
}

TEST_F(RepairTest, a_plan_is_made_from_nothing_where_a_repair_would_be_much_slower) {
  begin(16, 1, 4);
  for (std::uint32_t r = 0; r < 4; ++r) plan_.stages[0].blocks[r].lanes = {r == 0 ? 0 : 12 + r, 13 + r};
  repair();
  expect_sound();
  EXPECT_EQ(busiest(plan_), 4.0);
  EXPECT_NE(plan_.reason.find("made from nothing, as the busiest rank of a repair would have 3.25 times"),
            std::string::npos)
      << plan_.reason;
}

TEST_F(RepairTest, a_plan_is_made_from_nothing_where_so_many_are_new_that_little_would_stay) {
  begin(16, 2, 8);
  for (std::uint32_t node = 20; node < 24; ++node) join(node);
  repair();
  expect_sound();
  EXPECT_NE(plan_.reason.find("made from nothing, as 4 of 12 ranks are new"), std::string::npos) << plan_.reason;
}

TEST_F(RepairTest, who_leaves_by_plan_is_given_up_like_one_that_is_gone) {
  begin(16, 4, 64);
  request_.members[30].idle = true;
  repair();
  expect_sound();
  EXPECT_EQ(changes_.workers, (std::vector<RankId>{{29}, {30}}));
}

TEST_F(RepairTest, new_copies_lie_on_other_racks_than_those_that_stay) {
  begin(16, 4, 64, 8);
  std::map<RankId, RackId> rack;
  for (const PlanMember& m : request_.members) rack[m.rank] = m.rack;
  for (const std::uint32_t rank : {5U, 21U, 22U, 47U}) lose(rank);
  repair();
  expect_sound();
  for (const ShardHolders& holders : plan_.shards) EXPECT_NE(rack[holders.primary], rack[holders.replicas[0]]);
}

TEST_F(RepairTest, copies_of_one_node_are_spread_as_soon_as_there_is_another) {
  begin(16, 2, 20);
  for (PlanMember& m : request_.members) m.node = {0};
  plan_ = make_plan(request_, job_, *layout_).value();
  ASSERT_EQ(plan_.failure_domains(), 1U);
  lose(5);
  join(1);
  repair();
  expect_sound();
  EXPECT_NE(plan_.reason.find("repaired"), std::string::npos) << plan_.reason;
  EXPECT_EQ(plan_.failure_domains(), 2U);
}

TEST_F(RepairTest, any_losses_and_joins_leave_sound_plans_that_move_one_copy_for_each_that_is_lost) {
  const PhiloxKey key = philox_key(5);
  std::uint64_t drawn = 0;
  const auto draw = [&](std::uint64_t below) {
    return static_cast<std::uint32_t>(philox_u64(key, drawn++, 0) % below);
  };
  int repaired = 0;
  for (int round = 0; round < 150; ++round) {
    const std::uint32_t stages = 1 + draw(4), lanes = 2 + draw(15);
    begin(lanes, stages, 2 + draw(stages * lanes - 1), draw(3));
    for (int change = 0; change < 8; ++change) {
      const std::size_t here = request_.members.size();
      const bool shrinks = here > 2 && (here == stages * lanes || draw(3) > 0);
      const std::uint32_t count = 1 + draw(shrinks ? std::min<std::uint64_t>(3, here - 2) : 2);
      for (std::uint32_t i = 0; i < count && shrinks; ++i) {
        lose(request_.members[draw(request_.members.size())].rank.value);
      }
      for (std::uint32_t i = 0; i < count && !shrinks && request_.members.size() < stages * lanes; ++i) join(draw(40));
      std::uint64_t lost = 0;
      for (const ShardHolders& holders : plan_.shards) {
        std::vector<RankId> all = holders.replicas;
        all.push_back(holders.primary);
        for (const RankId r : all) {
          const auto is_it = [&](const PlanMember& m) { return m.rank == r; };
          lost += std::none_of(request_.members.begin(), request_.members.end(), is_it) ? 1 : 0;
        }
      }
      repair();
      ASSERT_NO_FATAL_FAILURE(expect_sound()) << "round " << round << " change " << change;
      request_.in_force = nullptr;
      const Plan anew = make_plan(request_, job_, *layout_).value();
      EXPECT_LE(busiest(plan_), 1.5 * busiest(anew) + 1) << plan_.reason;
      if (plan_.reason.find("repaired") == std::string::npos) continue;
      ++repaired;
      // A rank that is put to another stage gives up what it was the primary of.
      if (shrinks && stages == 1) {
        EXPECT_LE(moved(), lost) << plan_.reason;
      }
    }
  }
  EXPECT_GT(repaired, 300);
}

}  // namespace
}  // namespace kintsugi
