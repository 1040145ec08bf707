#include "engine/data/batch_reader.hpp"

#include <gmock/gmock.h>

#include <map>
#include <numeric>

#include "tests/base/temporary_folder.hpp"

namespace kintsugi {
namespace {

BatchConfig batch_of(std::int64_t sequences, std::int64_t microbatch, std::int64_t lanes, std::int64_t length) {
  return {.sequences = sequences, .microbatch = microbatch, .lanes = lanes, .length = length};
}

std::vector<std::uint64_t> samples_of_step(const SampleOrder& order, const BatchConfig& batch, std::uint64_t step) {
  std::vector<std::uint64_t> samples;
  std::vector<std::uint64_t> some(static_cast<std::size_t>(batch.microbatch));
  for (std::uint32_t lane = 0; lane < batch.lanes; ++lane) {
    for (std::uint32_t m = 0; m < batch.microbatches_per_lane(); ++m) {
      order.samples_of({Step{step}, LaneId{lane}, m}, some);
      samples.insert(samples.end(), some.begin(), some.end());
    }
  }
  return samples;
}

TEST(SampleOrder, each_pass_holds_every_sample_once_also_where_a_step_spans_two_passes) {
  for (const std::uint64_t samples : {1u, 3u, 7u, 8u, 50u, 101u}) {
    const BatchConfig batch = batch_of(8, 2, 2, 4);
    const SampleOrder order(samples, batch, 5);
    std::vector<std::uint64_t> row;
    for (std::uint64_t step = 0; row.size() < 3 * samples; ++step) {
      for (const std::uint64_t s : samples_of_step(order, batch, step)) row.push_back(s);
    }
    for (std::uint64_t pass = 0; pass < 3; ++pass) {
      std::vector<std::uint64_t> one(row.begin() + static_cast<std::ptrdiff_t>(pass * samples),
                                     row.begin() + static_cast<std::ptrdiff_t>((pass + 1) * samples));
      std::sort(one.begin(), one.end());
      std::vector<std::uint64_t> all(samples);
      std::iota(all.begin(), all.end(), 0u);
      EXPECT_EQ(one, all) << samples << " samples, pass " << pass;
    }
  }
}

TEST(SampleOrder, the_samples_of_a_step_do_not_depend_on_lanes_or_microbatches) {
  const BatchConfig whole = batch_of(24, 24, 1, 4);
  const SampleOrder expected(1000, whole, 9);
  for (const auto& [lanes, microbatch] : {std::pair{2, 4}, std::pair{3, 8}, std::pair{6, 1}, std::pair{12, 2}}) {
    const BatchConfig batch = batch_of(24, microbatch, lanes, 4);
    EXPECT_EQ(samples_of_step(SampleOrder(1000, batch, 9), batch, 41), samples_of_step(expected, whole, 41));
  }
}

class BatchReaderTest : public testing::Test {
 protected:
  BatchReader reader(std::uint64_t tokens, BatchConfig batch) {
    std::vector<std::uint16_t> values(tokens);
    std::iota(values.begin(), values.end(), std::uint16_t{0});
    auto file = TokenFile::open(dir_.write_values("tokens", values), TokenFormat::uint16).value();
    return BatchReader::make(std::move(file), batch, 3, 65536).value();
  }
  TemporaryFolder dir_;
};

TEST_F(BatchReaderTest, targets_are_the_tokens_that_follow) {
  const BatchReader batches = reader(101, batch_of(4, 2, 2, 10));
  std::vector<std::int32_t> tokens(batches.rows());
  std::vector<std::int32_t> targets(batches.rows());
  std::map<std::int32_t, int> starts;
  for (std::uint64_t step = 0; step < 5; ++step) {
    for (std::uint32_t lane = 0; lane < 2; ++lane) {
      ASSERT_TRUE(batches.fill({Step{step}, LaneId{lane}, 0}, tokens, targets).ok());
      for (std::size_t i = 0; i < batches.rows(); ++i) {
        EXPECT_EQ(targets[i], tokens[i] + 1);
        EXPECT_EQ(tokens[i], tokens[i / 10 * 10] + static_cast<std::int32_t>(i % 10));
      }
      ++starts[tokens[0]];
      ++starts[tokens[10]];
    }
  }
  // 101 tokens are 10 samples of 10 and one more; 5 steps of 4 sequences are two passes.
  EXPECT_EQ(starts.size(), 10u);
  for (const auto& [start, times] : starts) EXPECT_TRUE(start % 10 == 0 && times == 2) << start;
}

TEST_F(BatchReaderTest, the_last_incomplete_sample_is_dropped) {
  EXPECT_EQ(sample_count(0, 10), 0u);
  EXPECT_EQ(sample_count(10, 10), 0u);
  EXPECT_EQ(sample_count(11, 10), 1u);
  EXPECT_EQ(sample_count(20, 10), 1u);
  EXPECT_EQ(sample_count(21, 10), 2u);
}

TEST_F(BatchReaderTest, a_file_shorter_than_one_sample_is_refused) {
  auto file = TokenFile::open(dir_.write("t", "0123456789"), TokenFormat::uint16).value();
  const auto refused = BatchReader::make(file, batch_of(1, 1, 1, 5), 0, 65536);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              testing::HasSubstr("has 5 tokens; one sample of batch.length 5 needs one token more"));
}

}  // namespace
}  // namespace kintsugi
