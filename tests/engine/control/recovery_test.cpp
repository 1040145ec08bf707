#include "engine/control/recovery.hpp"

#include <capnp/message.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/philox.hpp"
#include "engine/control/recovery_codec.hpp"
#include "tests/engine/plan/plan_cases.hpp"

namespace kintsugi {
namespace {

DecisionRecord record(std::uint64_t step, std::uint32_t generation = 1) {
  DecisionRecord r{{1}, {1}, {1, generation}, {step}};
  r.updates = step;
  return r;
}

CopyReport copy(std::uint32_t shard, std::uint64_t version, bool gradient = false, std::uint64_t corrupt = 0) {
  return {{shard}, {version}, version, {shard + 1, 1000 * version + corrupt}, gradient};
}

using Holders = std::vector<FewRanks>;  // by shard

std::vector<RankId> ids(std::initializer_list<std::uint32_t> values) {
  std::vector<RankId> ranks;
  for (const std::uint32_t v : values) ranks.push_back({v});
  return ranks;
}

TEST(Cut, who_holds_the_gradient_of_a_final_step_is_a_holder_and_who_lacks_it_is_not) {
  const std::vector<RankReport> reports = {{{0}, {1}, true, {copy(0, 5)}, record(5)},
                                           {{1}, {1}, true, {copy(0, 4, true)}, record(4)},
                                           {{2}, {2}, true, {copy(0, 4)}, record(4)}};
  const Cut cut = decide_cut(reports, std::nullopt, 1);
  EXPECT_EQ(cut.step.value, 5U);
  EXPECT_EQ(cut.record, record(5));
  EXPECT_EQ(cut.holders, Holders{ids({0, 1})});
  EXPECT_TRUE(cut.disagreements.empty());
}

TEST(Cut, a_step_without_a_record_did_not_happen_though_all_hold_its_gradient) {
  const std::vector<RankReport> reports = {{{0}, {1}, true, {copy(0, 4, true)}, record(4)},
                                           {{1}, {2}, true, {copy(0, 4, true)}, record(4)}};
  EXPECT_EQ(decide_cut(reports, std::nullopt, 1).step.value, 4U);
}

TEST(Cut, a_record_that_only_the_asker_knows_is_final_too) {
  const std::vector<RankReport> reports = {{{0}, {1}, true, {copy(0, 4, true)}, record(4)}};
  const Cut cut = decide_cut(reports, record(5), 1);
  EXPECT_EQ(cut.step.value, 5U);
  EXPECT_EQ(cut.record, record(5));
  EXPECT_EQ(cut.holders, Holders{ids({0})});
}

TEST(Cut, the_gradient_of_a_process_is_gone_with_it_and_its_memory_is_not) {
  std::vector<RankReport> reports = {{{0}, {1}, false, {copy(0, 4, true)}, std::nullopt}};
  EXPECT_EQ(decide_cut(reports, record(5), 1).lost, std::vector<ShardId>{{0}});
  EXPECT_EQ(decide_cut(reports, record(4), 1).holders, Holders{ids({0})});
}

TEST(Cut, of_two_copies_that_differ_none_is_believed_and_of_three_the_odd_one_is_not) {
  std::vector<RankReport> reports = {{{0}, {1}, true, {copy(0, 4, false, 1)}, record(4)},
                                     {{1}, {2}, true, {copy(0, 4)}, record(4)}};
  Cut cut = decide_cut(reports, std::nullopt, 1);
  EXPECT_EQ(cut.lost, std::vector<ShardId>{{0}});
  ASSERT_EQ(cut.disagreements.size(), 1U);
  EXPECT_NE(cut.disagreements[0].find("copies of shard 0 at step 4 differ: rank"), std::string::npos);
  EXPECT_NE(cut.disagreements[0].find("none of them is believed"), std::string::npos);

  reports.push_back({{2}, {2}, false, {copy(0, 4)}, std::nullopt});  // what is left behind is a witness too
  cut = decide_cut(reports, std::nullopt, 1);
  EXPECT_EQ(cut.holders, Holders{ids({1, 2})});
  EXPECT_EQ(cut.disagreements.size(), 1U);
}

TEST(Cut, nothing_reported_is_step_0_with_every_shard_lost) {
  const Cut cut = decide_cut({}, std::nullopt, 3);
  EXPECT_EQ(cut.step.value, 0U);
  EXPECT_EQ(cut.lost.size(), 3U);
}

TEST(Cut, of_two_records_of_one_step_the_newer_generations_is_taken) {
  const std::vector<RankReport> reports = {{{0}, {1}, false, {}, record(5, 1)},
                                           {{1}, {1}, true, {copy(0, 5)}, record(5, 2)}};
  EXPECT_EQ(decide_cut(reports, std::nullopt, 1).record, record(5, 2));
}

// Draws in a row.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : key_(philox_key(seed)) {}
  std::uint64_t below(std::uint64_t n) { return philox_u64(key_, ++draws_, 0) % n; }
  bool once_in(std::uint64_t n) { return below(n) == 0; }

 private:
  PhiloxKey key_;
  std::uint64_t draws_ = 0;
};

struct Inventory {
  std::vector<RankReport> reports;
  std::optional<DecisionRecord> known;
  std::uint32_t shards = 0;
};

Inventory random_inventory(Dice& dice) {
  Inventory all;
  const std::uint64_t base = 1 + dice.below(3);
  all.shards = static_cast<std::uint32_t>(1 + dice.below(3));
  const std::uint64_t ranks = dice.below(6);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    RankReport report{{r}, {static_cast<std::uint32_t>(dice.below(3))}, !dice.once_in(3), {}, std::nullopt};
    if (dice.once_in(2)) report.record = record(base + dice.below(2));
    for (std::uint32_t s = 0; s < all.shards; ++s) {
      if (dice.once_in(4)) continue;
      const std::uint64_t version = base - 1 + (dice.once_in(8) ? 0 : 1) + (dice.once_in(3) ? 1 : 0);
      report.copies.push_back(copy(s, version, dice.once_in(2), dice.once_in(8) ? 1 : 0));
    }
    all.reports.push_back(std::move(report));
  }
  if (dice.once_in(3)) all.known = record(base + dice.below(2));
  return all;
}

// By brute force: `c` of `by` is, or can be brought to, `step`, and more copies agree with it than with any other.
bool can_reach(const Inventory& all, const RankReport& by, const CopyReport& c, Step step) {
  bool record_exists = all.known && all.known->step == step;
  for (const RankReport& r : all.reports) record_exists |= r.record && r.record->step == step;
  const bool there = c.version == step;
  const bool one_short = c.version.value + 1 == step.value && by.alive && c.has_next_gradient && record_exists;
  if (!there && !one_short) return false;
  std::map<Digest, int> votes;
  for (const RankReport& r : all.reports) {
    for (const CopyReport& other : r.copies) {
      if (other.shard == c.shard && other.version == c.version) ++votes[other.digest];
    }
  }
  return std::all_of(votes.begin(), votes.end(),
                     [&](const auto& v) { return v.first == c.digest || v.second < votes[c.digest]; });
}

TEST(Cut, random_inventories_are_cut_at_the_newest_step_that_is_known_and_the_holders_can_get_there) {
  Dice dice(41);
  for (int round = 0; round < 20'000; ++round) {
    const Inventory all = random_inventory(dice);
    const Cut cut = decide_cut(all.reports, all.known, all.shards);
    Step newest = all.known ? all.known->step : Step{};
    for (const RankReport& r : all.reports) {
      if (r.record) newest = std::max(newest, r.record->step);
      for (const CopyReport& c : r.copies) newest = std::max(newest, c.version);
    }
    ASSERT_EQ(cut.step, newest);
    ASSERT_TRUE(!cut.record || cut.record->step == newest);
    ASSERT_EQ(cut.holders.size(), all.shards);
    std::set<ShardId> lost;
    for (std::uint32_t s = 0; s < all.shards; ++s) {
      std::vector<RankId> living, gone;
      for (const RankReport& r : all.reports) {
        for (const CopyReport& c : r.copies) {
          if (c.shard.value == s && can_reach(all, r, c, newest)) (r.alive ? living : gone).push_back(r.rank);
        }
      }
      living.insert(living.end(), gone.begin(), gone.end());
      ASSERT_EQ(cut.holders[s], living) << "round " << round << " shard " << s;
      if (living.empty()) lost.insert({s});
    }
    ASSERT_EQ(std::set<ShardId>(cut.lost.begin(), cut.lost.end()), lost);
    ASSERT_EQ(lost.size(), cut.lost.size());
  }
}

Cut cut_of(const std::vector<RankReport>& reports, std::uint32_t shards) {
  Cut cut = decide_cut(reports, std::nullopt, shards);
  EXPECT_TRUE(cut.lost.empty());
  return cut;
}

// One shard, held by `primary` and `replicas`.
Plan one_shard(std::vector<PlanRank> ranks, RankId primary, std::vector<RankId> replicas = {}) {
  return {{1}, {1}, {1, 2}, 1, std::move(ranks), {}, {{primary, std::move(replicas)}}, {}};
}

TEST(Transition, memory_left_on_the_receivers_node_is_taken_over_rather_than_copied) {
  const std::vector<RankReport> reports = {{{0}, {1}, false, {copy(0, 4)}, std::nullopt},
                                           {{1}, {1}, true, {}, std::nullopt},
                                           {{2}, {2}, true, {copy(0, 4)}, record(4)}};
  const Transition t = plan_transition(one_shard({{{1}, {1}}, {{2}, {2}}}, {2}, ids({1})), cut_of(reports, 1), reports);
  EXPECT_EQ(t.moves, (std::vector<ShardMove>{{{0}, {1}, {0}, true}}));
  EXPECT_EQ(t.step.value, 4U);
  EXPECT_EQ(t.record, record(4));
}

TEST(Transition, one_memory_serves_one_receiver_and_the_other_copies_from_it) {
  const std::vector<RankReport> reports = {{{0}, {1}, false, {copy(0, 4)}, std::nullopt},
                                           {{1}, {1}, true, {}, std::nullopt},
                                           {{2}, {1}, true, {}, std::nullopt}};
  const Transition t = plan_transition(one_shard({{{1}, {1}}, {{2}, {1}}}, {1}, ids({2})), cut_of(reports, 1), reports);
  EXPECT_EQ(t.moves, (std::vector<ShardMove>{{{0}, {1}, {0}, true}, {{0}, {2}, {1}, false}}));
}

TEST(Transition, memory_on_a_node_without_a_holder_is_passed_on_by_a_member_there) {
  const std::vector<RankReport> reports = {{{0}, {1}, false, {copy(0, 4)}, std::nullopt},
                                           {{1}, {1}, true, {}, std::nullopt},
                                           {{2}, {2}, true, {}, std::nullopt}};
  const Cut cut = cut_of(reports, 1);
  const std::vector<PlanMember> members = {{{1}, {1}}, {{2}, {2}}};
  EXPECT_EQ(reachable_copies(cut, reports, members), Holders{ids({1})});
  EXPECT_TRUE(reachable_copies(cut, reports, std::vector<PlanMember>{{{2}, {2}}})[0].empty());
  const Transition t = plan_transition(one_shard({{{1}, {1}}, {{2}, {2}}}, {2}), cut, reports);
  EXPECT_EQ(t.moves, (std::vector<ShardMove>{{{0}, {1}, {0}, true}, {{0}, {2}, {1}, false}}));
}

TEST(Transition, copies_come_from_the_receivers_node_first_and_else_from_who_has_sent_least) {
  std::vector<RankReport> reports;
  for (std::uint32_t r = 0; r < 4; ++r) reports.push_back({{r}, {r / 2 + 1}, true, {}, record(4)});
  reports.push_back({{4}, {3}, true, {}, record(4)});
  Plan plan = one_shard({{{0}, {1}}, {{1}, {1}}, {{2}, {2}}, {{3}, {2}}, {{4}, {3}}}, {4});
  plan.shards.assign(4, {{4}, {}});
  plan.shards.push_back({{1}, {}});
  for (std::uint32_t s = 0; s < 5; ++s) {
    reports[0].copies.push_back(copy(s, 4));
    reports[2].copies.push_back(copy(s, 4));
  }
  std::map<RankId, int> sent;
  for (const ShardMove& move : plan_transition(plan, cut_of(reports, 5), reports).moves) {
    ++sent[move.from];
    if (move.to == RankId{1}) {
      EXPECT_EQ(move.from, RankId{0});
    }
  }
  EXPECT_EQ(sent[{0}] + sent[{2}], 5);
  EXPECT_LE(sent[{2}], sent[{0}]);
  EXPECT_GE(sent[{2}], 2);
}

// Four ranks on nodes of their own, one stage of four lanes; rank 3 is gone.
class Interrupted : public ::testing::Test {
 protected:
  Interrupted() {
    for (std::uint32_t r = 0; r < 3; ++r) {
      RankReport& report = reports_.emplace_back(RankReport{{r}, {r}, true, {}, record(4)});
      for (std::uint32_t s = 0; s < shards_; ++s) report.copies.push_back(copy(s, 4));
      report.sums = {{5}, {}, {{r}}};
      for (std::uint32_t l = 0; r > 0 && l < layout_.layer_count(); ++l) report.sums.sums.push_back({{l}, {r, 1}});
    }
    interrupted_ = StepUnderWay{testing::plan_for(job_, 4, 4), {2}, {}};
  }
  Transition transition() const {
    const Cut cut = cut_of(reports_, shards_);
    PlanRequest request{{1}, {1}, {1, 2}, {{{0}, {0}}, {{1}, {1}}, {{2}, {2}}}};
    return plan_transition(make_plan(request, job_, layout_).value(), cut, reports_, interrupted_);
  }

  const JobConfig job_ = testing::small_job(2, 4, 1);
  const ModelLayout layout_{job_.model};
  const std::uint32_t shards_ = static_cast<std::uint32_t>(layout_.shards().size());
  std::vector<RankReport> reports_;
  std::optional<StepUnderWay> interrupted_;
};

TEST_F(Interrupted, what_survivors_finished_is_kept_and_what_was_begun_and_lost_is_done_again) {
  const Transition t = transition();
  EXPECT_EQ(t.sums.size(), 2U * layout_.layer_count());
  EXPECT_EQ(t.again, (std::vector<LaneId>{{0}, {3}})) << "half done by a survivor, and of the one that is gone";
  reports_[0].sums.begun.clear();
  EXPECT_EQ(transition().again, (std::vector<LaneId>{{3}}));
}

TEST_F(Interrupted, sums_of_another_step_or_of_no_lane_of_the_job_are_worth_nothing) {
  reports_[1].sums.step = {4};
  reports_[2].sums.sums = {{{0}, {2, 4}}, {{99}, {2, 1}}, {{0}, {1, 2}}};
  EXPECT_TRUE(transition().sums.empty());
}

TEST_F(Interrupted, a_sum_that_died_with_its_keeper_is_done_again_whoever_the_lane_belongs_to) {
  reports_[1].sums.sums.clear();  // rank 1 works lane 1, but need not begin it: rank 3 has its sum
  reports_[1].sums.begun.clear();
  EXPECT_EQ(transition().again, (std::vector<LaneId>{{0}, {3}}));
  interrupted_->from = {4};
  interrupted_->sums = {{{{0}, {1, 1}}, {3}}};
  EXPECT_EQ(transition().again, (std::vector<LaneId>{{0}, {1}, {3}}));
}

TEST_F(Interrupted, reports_and_transitions_survive_their_journey) {
  capnp::MallocMessageBuilder holding, began;
  write_holding(reports_[2], holding.initRoot<schemas::Holding>());
  EXPECT_EQ(read_holding(holding.getRoot<schemas::Holding>().asReader(), {2}, true), reports_[2]);
  write_transition(transition(), began.initRoot<schemas::Transition>());
  EXPECT_EQ(read_transition(began.getRoot<schemas::Transition>().asReader()), transition());
}

TEST(Transition, random_plans_are_filled_by_moves_that_can_be_made_and_by_no_more_than_are_needed) {
  Dice dice(43);
  JobConfig job = testing::small_job(2, 4, 1);
  const ModelLayout layout(job.model);
  const std::uint32_t shards = static_cast<std::uint32_t>(layout.shards().size());
  int planned = 0;
  for (int round = 0; round < 3'000; ++round) {
    job.resilience.replicas = static_cast<std::int64_t>(1 + dice.below(3));
    std::vector<RankReport> reports;
    std::vector<PlanMember> members;
    for (std::uint32_t r = 0; r < 5; ++r) {
      RankReport report{{r}, {static_cast<std::uint32_t>(dice.below(3))}, r == 0 || !dice.once_in(3), {}, record(4)};
      for (std::uint32_t s = 0; s < shards; ++s) {
        if (dice.once_in(2)) report.copies.push_back(copy(s, dice.once_in(4) ? 3 : 4, dice.once_in(2)));
      }
      if (report.alive && members.size() < 4) members.push_back({report.rank, report.node});
      if (!report.alive || members.back().rank == report.rank) reports.push_back(report);
    }
    const Cut cut = decide_cut(reports, std::nullopt, shards);
    PlanRequest request{{1}, {1}, {1, 2}, members, reachable_copies(cut, reports, members)};
    if (std::any_of(request.copies.begin(), request.copies.end(), [](const auto& c) { return c.empty(); })) continue;
    ++planned;
    const Plan plan = make_plan(request, job, layout).value();
    const Transition t = plan_transition(plan, cut, reports);

    std::set<std::pair<ShardId, RankId>> have;
    for (std::uint32_t s = 0; s < shards; ++s) {
      for (const RankId r : cut.holders[s]) have.insert({{s}, r});
    }
    std::map<RankId, NodeId> node;
    std::set<RankId> alive;
    for (const RankReport& r : reports) {
      node[r.rank] = r.node;
      if (r.alive) alive.insert(r.rank);
    }
    std::map<std::pair<ShardId, RankId>, int> used;  // as a source
    for (const ShardMove& m : t.moves) ++used[{m.shard, m.from}];
    for (const ShardMove& m : t.moves) {
      ASSERT_TRUE(have.contains({m.shard, m.from})) << "from whom has nothing yet";
      ASSERT_EQ(m.take_over, !alive.contains(m.from));
      ASSERT_TRUE(!m.take_over || (node[m.from] == node[m.to] && have.erase({m.shard, m.from}) == 1));
      ASSERT_TRUE(plan.shards[m.shard.value].has(m.to) || used[std::pair(m.shard, m.to)] > 0) << "for nothing";
      ASSERT_TRUE(have.insert({m.shard, m.to}).second) << "what it has already";
    }
    for (std::uint32_t s = 0; s < shards; ++s) {
      ASSERT_TRUE(have.contains({{s}, plan.shards[s].primary}));
      for (const RankId r : plan.shards[s].replicas) ASSERT_TRUE(have.contains({{s}, r}));
    }
  }
  EXPECT_GT(planned, 500);
}

}  // namespace
}  // namespace kintsugi
