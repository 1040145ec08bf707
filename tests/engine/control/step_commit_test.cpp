#include "engine/control/step_commit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/engine/plan/plan_cases.hpp"

namespace kintsugi {
namespace {

constexpr std::uint32_t kShards = 5;

JobConfig job() {
  JobConfig j = testing::small_job(2, 4, 1);
  j.optimizer = {.learning_rate = 1e-3, .clip = 1.0};
  return j;
}

// Two ranks on two nodes, each the replica of the other.
Plan plan() {
  Plan p{{1}, {2}, {3, 4}, 4, {{{5}, {1}}, {{8}, {2}}}, {}, {}, {}};
  for (std::uint32_t s = 0; s < kShards; ++s) {
    p.shards.push_back(s % 2 == 0 ? ShardHolders{{5}, {{8}}} : ShardHolders{{8}, {{5}}});
  }
  return p;
}

Contribution full() {
  Contribution c;
  for (std::uint32_t s = 0; s < kShards; ++s) {
    c.shards.push_back({{s}, 1.0 + s, {s, 7}});
    c.replicas.push_back({{s}, plan().shards[s].replicas[0], {s, 7}});
  }
  for (std::uint32_t l = 0; l < 4; ++l) c.lanes.push_back({{l}, 10.0 * (l + 1)});
  return c;
}

const CommitState kState{{1}, {2}, {3, 4}, {9}, 8};

TEST(StepCommit, a_record_carries_the_scalars_of_the_step) {
  const Result<DecisionRecord> r = decide_step(kState, job(), plan(), full());
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->step.value, 10U);
  EXPECT_EQ(r->outcome, Outcome::commit);
  EXPECT_EQ(r->updates, 9U);
  EXPECT_FLOAT_EQ(r->gradient_norm, static_cast<float>(std::sqrt(15.0)));
  EXPECT_FLOAT_EQ(r->clip_scale, static_cast<float>(1.0 / std::sqrt(15.0)));
  EXPECT_FLOAT_EQ(r->loss, 100.0F / 64.0F);
  EXPECT_FLOAT_EQ(r->learning_rate, 1e-3F);
  EXPECT_EQ(r->failure_domains, 2U);
  EXPECT_EQ(decode_record(encode_record(*r)).value(), *r);
}

TEST(StepCommit, the_order_of_contributions_does_not_show) {
  Contribution shuffled = full();
  std::reverse(shuffled.shards.begin(), shuffled.shards.end());
  std::rotate(shuffled.lanes.begin(), shuffled.lanes.begin() + 1, shuffled.lanes.end());
  EXPECT_EQ(decide_step(kState, job(), plan(), shuffled).value(), decide_step(kState, job(), plan(), full()).value());
}

TEST(StepCommit, a_sum_that_is_not_finite_makes_a_skip_that_advances_the_step_and_not_t) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Contribution c = full();
    c.shards[3].squared_norm = bad;
    const Result<DecisionRecord> r = decide_step(kState, job(), plan(), c);
    ASSERT_TRUE(r.ok());
    EXPECT_EQ(r->outcome, Outcome::skip);
    const CommitState next = advance(kState, *r);
    EXPECT_EQ(next.step.value, kState.step.value + 1);
    EXPECT_EQ(next.updates, kState.updates);
  }
}

TEST(StepCommit, a_missing_or_double_shard_or_lane_is_no_step_and_is_named) {
  Contribution c = full();
  c.shards.erase(c.shards.begin() + 2);
  EXPECT_NE(decide_step(kState, job(), plan(), c).error().message.find("shard 2 missing"), std::string::npos);
  c = full();
  c.shards.push_back(c.shards[1]);
  EXPECT_NE(decide_step(kState, job(), plan(), c).error().message.find("shard 1 twice"), std::string::npos);
  c = full();
  c.lanes.pop_back();
  EXPECT_NE(decide_step(kState, job(), plan(), c).error().message.find("lane 3 missing"), std::string::npos);
  c = full();
  c.shards.push_back({{kShards}, 1.0, {}});
  EXPECT_FALSE(decide_step(kState, job(), plan(), c).ok());
}

std::string refusal(const Contribution& c) {
  const Result<DecisionRecord> r = decide_step(kState, job(), plan(), c);
  EXPECT_FALSE(r.ok());
  if (r.ok()) return "";
  EXPECT_EQ(r.error().action, ErrorAction::end_generation);
  return r.error().message;
}

TEST(StepCommit, a_replica_that_has_not_acknowledged_is_no_step_and_is_named) {
  Contribution c = full();
  c.replicas.erase(c.replicas.begin() + 3);
  EXPECT_NE(refusal(c).find("shard 3 by rank 5"), std::string::npos);
  c = full();
  c.replicas[3].holder = {9};  // somebody else's does not count
  EXPECT_NE(refusal(c).find("shard 3 by rank 5"), std::string::npos);
  c = full();
  c.replicas.push_back({{3}, {9}, {3, 7}});
  EXPECT_NE(refusal(c).find("6 acknowledgements of replicas, the plan 5"), std::string::npos);
}

TEST(StepCommit, a_replica_whose_copy_differs_from_the_primarys_is_no_step_and_both_are_named) {
  Contribution c = full();
  c.replicas[2].previous_digest.high ^= 1;
  EXPECT_NE(refusal(c).find("shard 2: the copies of rank 5 and rank 8 differ"), std::string::npos);
}

TEST(StepCommit, a_change_of_generation_is_voted_only_if_all_are_ready_for_the_same_one) {
  Contribution ready = full(), other = {};
  ready.ready_for = other.ready_for = Generation{3, 5};
  EXPECT_EQ(decide_step(kState, job(), plan(), merge(ready, other))->next_generation, (Generation{3, 5}));
  other.ready_for = Generation{3, 6};
  EXPECT_EQ(decide_step(kState, job(), plan(), merge(ready, other))->next_generation, std::nullopt);
  other.ready_for.reset();
  EXPECT_EQ(decide_step(kState, job(), plan(), merge(other, ready))->next_generation, std::nullopt);
}

TEST(StepCommit, the_digest_of_the_state_before_depends_on_every_shard_and_on_t) {
  const Digest base = decide_step(kState, job(), plan(), full())->previous_digest;
  for (std::uint32_t s = 0; s < kShards; ++s) {
    Contribution c = full();
    c.shards[s].previous_digest.low ^= 1;
    c.replicas[s].previous_digest.low ^= 1;
    EXPECT_NE(decide_step(kState, job(), plan(), c)->previous_digest, base);
  }
  CommitState other = kState;
  other.updates += 1;
  EXPECT_NE(decide_step(other, job(), plan(), full())->previous_digest, base);
  EXPECT_EQ(digest_of_contribution(kState, job(), plan(), full()).value(), base);
}

TEST(StepCommit, contributions_survive_their_journey_and_damage_is_refused) {
  Contribution sent = full();
  sent.ready_for = Generation{3, 5};
  const std::vector<std::byte> bytes = encode_contribution(sent);
  EXPECT_EQ(decode_contribution(bytes).value(), sent);
  EXPECT_EQ(decode_contribution(encode_contribution(full())).value(), full());
  EXPECT_FALSE(decode_contribution(std::span(bytes).first(bytes.size() - 8)).ok());
  EXPECT_FALSE(decode_contribution({}).ok());
}

}  // namespace
}  // namespace kintsugi
