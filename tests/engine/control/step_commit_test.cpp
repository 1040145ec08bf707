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

Contribution full() {
  Contribution c;
  for (std::uint32_t s = 0; s < kShards; ++s) c.shards.push_back({{s}, 1.0 + s, {s, 7}});
  for (std::uint32_t l = 0; l < 4; ++l) c.lanes.push_back({{l}, 10.0 * (l + 1)});
  return c;
}

const CommitState kState{{1}, {2}, {3, 4}, {9}, 8};

TEST(StepCommit, a_record_carries_the_scalars_of_the_step) {
  const Result<DecisionRecord> r = decide_step(kState, job(), kShards, full());
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->step.value, 10U);
  EXPECT_EQ(r->outcome, Outcome::commit);
  EXPECT_EQ(r->updates, 9U);
  EXPECT_FLOAT_EQ(r->gradient_norm, static_cast<float>(std::sqrt(15.0)));
  EXPECT_FLOAT_EQ(r->clip_scale, static_cast<float>(1.0 / std::sqrt(15.0)));
  EXPECT_FLOAT_EQ(r->loss, 100.0F / 64.0F);
  EXPECT_FLOAT_EQ(r->learning_rate, 1e-3F);
  EXPECT_EQ(decode_record(encode_record(*r)).value(), *r);
}

TEST(StepCommit, the_order_of_contributions_does_not_show) {
  Contribution shuffled = full();
  std::reverse(shuffled.shards.begin(), shuffled.shards.end());
  std::rotate(shuffled.lanes.begin(), shuffled.lanes.begin() + 1, shuffled.lanes.end());
  EXPECT_EQ(decide_step(kState, job(), kShards, shuffled).value(), decide_step(kState, job(), kShards, full()).value());
}

TEST(StepCommit, a_sum_that_is_not_finite_makes_a_skip_that_advances_the_step_and_not_t) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Contribution c = full();
    c.shards[3].squared_norm = bad;
    const Result<DecisionRecord> r = decide_step(kState, job(), kShards, c);
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
  EXPECT_NE(decide_step(kState, job(), kShards, c).error().message.find("shard 2 missing"), std::string::npos);
  c = full();
  c.shards.push_back(c.shards[1]);
  EXPECT_NE(decide_step(kState, job(), kShards, c).error().message.find("shard 1 twice"), std::string::npos);
  c = full();
  c.lanes.pop_back();
  EXPECT_NE(decide_step(kState, job(), kShards, c).error().message.find("lane 3 missing"), std::string::npos);
  c = full();
  c.shards.push_back({{kShards}, 1.0, {}});
  EXPECT_FALSE(decide_step(kState, job(), kShards, c).ok());
}

TEST(StepCommit, the_digest_of_the_state_before_depends_on_every_shard_and_on_t) {
  const Digest base = decide_step(kState, job(), kShards, full())->previous_digest;
  for (std::uint32_t s = 0; s < kShards; ++s) {
    Contribution c = full();
    c.shards[s].previous_digest.low ^= 1;
    EXPECT_NE(decide_step(kState, job(), kShards, c)->previous_digest, base);
  }
  CommitState other = kState;
  other.updates += 1;
  EXPECT_NE(decide_step(other, job(), kShards, full())->previous_digest, base);
  EXPECT_EQ(digest_of_contribution(kState, job(), kShards, full()).value(), base);
}

TEST(StepCommit, contributions_survive_their_journey_and_damage_is_refused) {
  const std::vector<std::byte> bytes = encode_contribution(full());
  EXPECT_EQ(decode_contribution(bytes).value(), full());
  EXPECT_FALSE(decode_contribution(std::span(bytes).first(bytes.size() - 8)).ok());
  EXPECT_FALSE(decode_contribution({}).ok());
}

}  // namespace
}  // namespace kintsugi
