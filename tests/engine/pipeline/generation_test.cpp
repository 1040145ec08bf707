#include <gtest/gtest.h>

#include <algorithm>

#include "engine/plan/planner.hpp"
#include "tests/engine/pipeline/survival_harness.hpp"
#include "transport/shm/shared_memory.hpp"

namespace kintsugi::test {
namespace {

using transport::MessageKind;
using Kind = PeerCall::Kind;

class GenerationTest : public testing::Test {
 protected:
  Plan plan_for(std::uint32_t ranks) {
    return must(make_plan({{1}, {1}, {1, 1}, ranks_apart(ranks)}, job_, ModelLayout(job_.model)));
  }
  Digest without_faults(std::uint64_t steps) { return train({job_, 1, steps}).final_digest; }
  void flip_a_bit(const RankThreads& ranks, RankId rank, ShardId shard) {
    namespace shm = transport::shm;
    const shm::Mapping mapping = must(shm::Mapping::map(ranks.memory(rank, shard), shm::Access::read_write));
    const ShardStoreLayout layout(ranks.layout().shard(shard));
    mapping.bytes()[layout.master + 2] ^= std::byte{4};
  }

  const TemporaryFolder folder_;
  JobConfig job_ = tiny_training_job(folder_, 2);
};

constexpr auto kIgnore = [](const DecisionRecord&, double) {};

TEST_F(GenerationTest, replicas_are_their_primaries_bit_for_bit_after_every_step) {
  RankThreads ranks(job_, cpu_devices());
  ranks.open(plan_for(4));
  for (std::uint64_t step = 0; step <= 4; ++step) {
    for (const auto& [rank, end] : ranks.run(true, [&](Trainer& trainer) -> Result<void> {
           if (step == 0) return trainer.initialise();
           return trainer.run({step}, kIgnore);
         })) {
      must(end);
    }
    std::map<ShardId, std::vector<ShardVersion>> copies;
    for (std::uint32_t r = 0; r < 4; ++r) {
      ShardStates& shards = ranks.trainer({r}).shards();
      const std::vector<ShardVersion> versions = shards.versions();
      for (std::size_t i = 0; i < versions.size(); ++i) copies[shards.copy(i).shard().id].push_back(versions[i]);
    }
    EXPECT_EQ(copies.size(), ranks.layout().shards().size());
    for (const auto& [shard, versions] : copies) {
      ASSERT_EQ(versions.size(), 2U) << "shard " << shard.value;
      EXPECT_EQ(versions[0].version, Step{step});
      EXPECT_EQ(versions[0].version, versions[1].version);
      EXPECT_EQ(versions[0].digest, versions[1].digest) << "shard " << shard.value << " after step " << step;
    }
  }
}

TEST_F(GenerationTest, two_ranks_hold_a_copy_of_everything_each_and_account_for_it) {
  const TrainingOutcome two = train({job_, 2, 2});
  const TrainingOutcome one = train({job_, 1, 2});
  EXPECT_EQ(one.accounts[0].replica_bytes, 0U);
  for (const Trainer::Account& a : two.accounts) {
    EXPECT_EQ(a.state_bytes + a.replica_bytes, one.accounts[0].state_bytes);
  }
}

TEST_F(GenerationTest, a_damaged_copy_is_named_by_the_vote_after_the_next_update) {
  for (const bool of_replica : {true, false}) {
    RankThreads ranks(job_, cpu_devices());
    const Plan plan = plan_for(2);
    const auto found = std::find_if(plan.shards.begin(), plan.shards.end(), [&](const ShardHolders& s) {
      return of_replica ? s.replicas[0] == RankId{1} : s.primary == RankId{1};
    });
    const ShardId shard{static_cast<std::uint32_t>(found - plan.shards.begin())};
    ranks.open(plan, {}, [&](const PeerCall& c) -> Result<void> {
      if (c.self == RankId{1} && call(Kind::send, MessageKind::contribution, 2)(c)) flip_a_bit(ranks, {1}, shard);
      return {};
    });
    std::vector<DecisionRecord> records;
    const auto ends = ranks.run(true, [&](Trainer& trainer) -> Result<void> {
      KINTSUGI_TRY(trainer.initialise());
      return trainer.run({5}, [&](const DecisionRecord& record, double) { records.push_back(record); });
    });
    EXPECT_EQ(records.size(), 2U);
    ASSERT_FALSE(ends.at({0}).ok());
    const std::string& told = ends.at({0}).error().message;
    EXPECT_NE(told.find("shard " + to_string(shard) + ": the copies of rank"), std::string::npos) << told;
    EXPECT_NE(told.find("rank 1"), std::string::npos) << told;
  }
}

TEST_F(GenerationTest, memory_that_was_damaged_before_it_changes_hands_is_found_out_and_done_without) {
  for (const bool taken_over : {true, false}) {
    RankThreads ranks(job_, cpu_devices());
    ranks.open(plan_for(3));
    for (const auto& [rank, end] : ranks.run(true, [&](Trainer& trainer) { return trainer.initialise(); })) must(end);
    // Rank 2 is gone. Either its memory is damaged, or that of whoever must make its copy anew.
    std::vector<PlanMember> members{{{0}, {0}}, {{1}, {1}}, {{3}, {2}}};
    const ShardId shard = ranks.trainer({2}).blueprint().program.shards.front();
    const RankId replica = ranks.plan().shards[shard.value].replicas[0];
    ranks.kill({2}, taken_over ? Remains::memory : Remains::nothing);
    flip_a_bit(ranks, taken_over ? RankId{2} : replica, shard);
    const Transition transition = ranks.recover(members, std::nullopt);
    const auto take_over = [&](const Transition& t) {
      return ranks.run(true, [&](Trainer& trainer) { return trainer.take_over(t); });
    };
    const RankId culprit = taken_over ? RankId{3} : replica;
    const auto ends = take_over(transition);
    ASSERT_FALSE(ends.at(culprit).ok());
    EXPECT_EQ(ends.at(culprit).error().action, ErrorAction::end_generation);
    const std::string named = "shard " + to_string(shard) + " at rank " + to_string(culprit);
    EXPECT_NE(ends.at(culprit).error().message.find(named), std::string::npos) << ends.at(culprit).error().message;
    const std::vector<CopyReport> left = ranks.trainer(culprit).inventory();
    EXPECT_TRUE(std::none_of(left.begin(), left.end(), [&](const CopyReport& c) { return c.shard == shard; }));
    if (!taken_over) continue;  // there is no third copy
    const Transition again = ranks.recover(members, std::nullopt);
    for (const auto& [rank, end] : take_over(again)) must(end);
  }
}

// Nobody is lost: the change takes effect at a step that all are ready for, and redoes none.
TEST_F(GenerationTest, a_planned_change_comes_at_the_first_vote_in_which_all_are_ready) {
  RankThreads ranks(job_, cpu_devices());
  ranks.open(plan_for(2), {}, [&](const PeerCall& c) -> Result<void> {
    // Rank 1 hears of the plan while step 2 is under way.
    if (c.self == RankId{1} && call(Kind::receive, MessageKind::decision, 2)(c)) ranks.trainer({1}).intend({1, 2});
    return {};
  });
  std::vector<DecisionRecord> records;
  const auto keep = [&](const DecisionRecord& record, double) { records.push_back(record); };
  for (const auto& [rank, end] : ranks.run(true, [&](Trainer& trainer) -> Result<void> {
         KINTSUGI_TRY(trainer.initialise());
         if (trainer.blueprint().program.rank == RankId{0}) trainer.intend({1, 2});
         return trainer.run({5}, keep);
       })) {
    must(end);
    EXPECT_EQ(ranks.trainer(rank).next_generation(), (Generation{1, 2}));
    EXPECT_EQ(ranks.trainer(rank).step(), Step{3});
    for (const CopyReport& copy : ranks.trainer(rank).inventory()) {
      EXPECT_EQ(copy.version, Step{3});
      EXPECT_FALSE(copy.has_next_gradient);
    }
  }
  EXPECT_EQ(records.size(), 3U);
  EXPECT_EQ(records[1].next_generation, std::nullopt);

  const Transition transition = ranks.recover(ranks_apart(4), records.back());
  EXPECT_EQ(transition.step, Step{3});
  EXPECT_TRUE(transition.sums.empty() && transition.again.empty());
  for (const auto& [rank, end] : ranks.run(true, [&](Trainer& trainer) -> Result<void> {
         KINTSUGI_TRY(trainer.take_over(transition));
         return trainer.run({5}, keep);
       })) {
    must(end);
    EXPECT_EQ(ranks.trainer(rank).final_digest(), without_faults(5));
    EXPECT_EQ(ranks.state(rank).copies().size(), ranks.trainer(rank).blueprint().copies().size())
        << "copies that the plan gives to others are let go";
  }
  EXPECT_EQ(records.size(), 5U);
}

TEST_F(GenerationTest, nobody_changes_for_one_that_is_not_ready_nor_at_the_last_step) {
  for (const std::uint32_t ready : {1U, 2U}) {
    RankThreads ranks(job_, cpu_devices());
    ranks.open(plan_for(2));
    const std::uint64_t steps = ready == 2 ? 1 : 3;
    for (const auto& [rank, end] : ranks.run(true, [&](Trainer& trainer) -> Result<void> {
           KINTSUGI_TRY(trainer.initialise());
           if (trainer.blueprint().program.rank.value < ready) trainer.intend({1, 2});
           return trainer.run({steps}, kIgnore);
         })) {
      must(end);
      EXPECT_EQ(ranks.trainer(rank).next_generation(), std::nullopt);
      EXPECT_EQ(ranks.trainer(rank).final_digest(), without_faults(steps));
    }
  }
}

// The record is held and the apply has not begun: what a cancel may cut is before or after an apply, never inside.
TEST_F(GenerationTest, a_record_held_but_not_applied_is_applied_from_the_gradients_that_were_kept) {
  RankThreads ranks(job_, cpu_devices());
  ranks.open(plan_for(3), {}, [&](const PeerCall& c) -> Result<void> {
    const std::optional<DecisionRecord> record = ranks.state(c.self).record();
    if (c.self == RankId{1} && c.kind == Kind::wait_sent && record && record->step == Step{2}) {
      return Error{ErrorAction::cancelled, "fenced by the test"};
    }
    return {};
  });
  const auto ends = ranks.run(true, [&](Trainer& trainer) -> Result<void> {
    KINTSUGI_TRY(trainer.initialise());
    return trainer.run({4}, kIgnore);
  });
  ASSERT_FALSE(ends.at({1}).ok());
  Trainer& trainer = ranks.trainer({1});
  EXPECT_EQ(trainer.record()->step, Step{2});
  for (const CopyReport& copy : trainer.inventory()) {
    EXPECT_EQ(copy.version, Step{1});
    EXPECT_TRUE(copy.has_next_gradient);
  }
  must(trainer.complete(*trainer.record()));
  must(trainer.complete(*trainer.record()));  // and once is enough
  EXPECT_EQ(trainer.step(), Step{2});
  for (const CopyReport& copy : trainer.inventory()) EXPECT_EQ(copy.version, Step{2});
  const Transition transition = ranks.recover(ranks_apart(3), std::nullopt);
  for (const auto& [rank, end] : ranks.run(true, [&](Trainer& next) -> Result<void> {
         KINTSUGI_TRY(next.take_over(transition));
         return next.run({4}, kIgnore);
       })) {
    must(end);
    EXPECT_EQ(ranks.trainer(rank).final_digest(), without_faults(4));
  }
}

}  // namespace
}  // namespace kintsugi::test
