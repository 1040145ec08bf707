#include "engine/state/state_digest.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace kintsugi {
namespace {

std::vector<float> ramp(std::size_t count, float from) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), from);
  return values;
}

// Golden values: tests/engine/state/golden.py, with the Python package xxhash.
TEST(StateDigest, digests_are_those_of_the_independent_script) {
  const auto master = ramp(5000, 0), moment1 = ramp(5000, 10'000), moment2 = ramp(5000, 20'000);
  const Digest shard = shard_digest({master, moment1, moment2});
  EXPECT_EQ(to_hex(shard), "d06658be7e5c70f0560aa3312895d036");
  const StatePosition position{{1, 2}, Step{3}, 4, 5};
  EXPECT_EQ(to_hex(state_digest(position, std::vector<ShardDigest>{{ShardId{0}, shard}, {ShardId{7}, {8, 9}}})),
            "507d269011c640e0e2880891bd579df6");
}

TEST(StateDigest, every_weight_and_moment_shows) {
  auto master = ramp(4097, 0), moment1 = ramp(4097, 1), moment2 = ramp(4097, 2);
  const Digest before = shard_digest({master, moment1, moment2});
  for (std::vector<float>* array : {&master, &moment1, &moment2}) {
    for (const std::size_t i : {0, 4095, 4096}) {
      const float kept = (*array)[i];
      (*array)[i] = -kept - 1;
      EXPECT_NE(shard_digest({master, moment1, moment2}), before);
      (*array)[i] = kept;
    }
  }
  EXPECT_EQ(shard_digest({master, moment1, moment2}), before);
  EXPECT_NE(shard_digest({master, moment2, moment1}), before);
}

TEST(StateDigest, every_part_of_the_position_and_every_shard_shows) {
  const StatePosition position{{1, 2}, Step{3}, 4, 5};
  const std::vector<ShardDigest> shards{{ShardId{0}, {6, 7}}, {ShardId{1}, {8, 9}}};
  const Digest before = state_digest(position, shards);
  for (const StatePosition& other : {StatePosition{{0, 2}, Step{3}, 4, 5}, StatePosition{{1, 0}, Step{3}, 4, 5},
                                     StatePosition{{1, 2}, Step{0}, 4, 5}, StatePosition{{1, 2}, Step{3}, 0, 5},
                                     StatePosition{{1, 2}, Step{3}, 4, 0}}) {
    EXPECT_NE(state_digest(other, shards), before);
  }
  EXPECT_NE(state_digest(position, std::vector<ShardDigest>{shards[0]}), before);
  EXPECT_NE(state_digest(position, std::vector<ShardDigest>{shards[0], {ShardId{2}, {8, 9}}}), before);
  EXPECT_NE(state_digest(position, std::vector<ShardDigest>{shards[0], {ShardId{1}, {9, 8}}}), before);
}

TEST(StateDigestDeathTest, shards_out_of_order_are_a_bug) {
  const std::vector<ShardDigest> shards{{ShardId{1}, {}}, {ShardId{0}, {}}};
  EXPECT_DEATH(state_digest({}, shards), "order of their ids");
}

}  // namespace
}  // namespace kintsugi
