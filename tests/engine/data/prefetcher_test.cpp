#include "engine/data/prefetcher.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <numeric>

#include "base/event.hpp"
#include "tests/base/temporary_folder.hpp"

namespace kintsugi {
namespace {

Instant in(Duration d) {
  return SteadyClock().now() + d;
}

// Fills with the number of the call; `before_fill` may block or refuse.
class FakeSource final : public MicrobatchSource {
 public:
  std::size_t rows() const override { return 4; }
  Result<void> fill(MicrobatchKey key, std::span<std::int32_t> tokens, std::span<std::int32_t>) const override {
    const int call = fills++;
    std::fill(tokens.begin(), tokens.end(), call);
    return before_fill ? before_fill(key, call) : Result<void>{};
  }
  void will_need(MicrobatchKey) const override { ++hints; }

  std::function<Result<void>(MicrobatchKey, int)> before_fill;
  mutable std::atomic<int> fills = 0;
  mutable std::atomic<int> hints = 0;
};

TEST(Prefetcher, prefetched_microbatches_equal_those_read_directly) {
  const TemporaryFolder dir;
  std::vector<std::uint16_t> values(5000);
  std::iota(values.begin(), values.end(), std::uint16_t{0});
  const BatchConfig batch{.sequences = 12, .microbatch = 2, .lanes = 3, .length = 16};
  auto file = TokenFile::open(dir.write_values("t", values), TokenFormat::uint16).value();
  const auto reader = std::make_shared<BatchReader>(BatchReader::make(file, batch, 1, 65536).value());
  const std::vector<MicrobatchSlot> work{{LaneId{2}, 0}, {LaneId{0}, 1}, {LaneId{2}, 1}};
  Prefetcher prefetcher(reader, work, Step{7}, 2);
  std::vector<std::int32_t> tokens(reader->rows());
  std::vector<std::int32_t> targets(reader->rows());
  for (std::uint64_t i = 0; i < 60; ++i) {
    const auto staged = prefetcher.take(in(seconds(30)));
    ASSERT_TRUE(staged.ok()) << staged.error().message;
    const MicrobatchKey expected{Step{7 + i / 3}, work[i % 3].lane, work[i % 3].microbatch};
    ASSERT_EQ(staged->key(), expected);
    ASSERT_TRUE(reader->fill(expected, tokens, targets).ok());
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), staged->tokens().begin()));
    EXPECT_TRUE(std::equal(targets.begin(), targets.end(), staged->targets().begin()));
  }
}

TEST(Prefetcher, it_stays_a_bounded_number_ahead_and_reuses_released_buffers_only) {
  const auto source = std::make_shared<FakeSource>();
  Prefetcher prefetcher(source, {{LaneId{0}, 0}}, Step{0}, 2);
  auto first = prefetcher.take(in(seconds(30)));
  auto second = prefetcher.take(in(seconds(30)));
  ASSERT_TRUE(first.ok() && second.ok());
  // Both buffers are lent: there is nothing to fill a third into.
  EXPECT_EQ(prefetcher.take(in(milliseconds(20))).error().action, ErrorAction::retry);
  EXPECT_EQ(source->fills, 2);
  EXPECT_EQ(first->tokens()[0], 0);
  first->release();
  const auto third = prefetcher.take(in(seconds(30)));
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(third->key().from, Step{2});
  EXPECT_EQ(second->tokens()[0], 1);
  EXPECT_GE(source->hints, source->fills);
}

TEST(Prefetcher, the_first_step_may_need_less) {
  const std::vector<MicrobatchSlot> work{{LaneId{0}, 0}, {LaneId{1}, 0}};
  for (const std::vector<MicrobatchSlot>& first : {std::vector<MicrobatchSlot>{{LaneId{1}, 0}}, {}}) {
    Prefetcher prefetcher(std::make_shared<FakeSource>(), work, Step{7}, 2, first);
    std::vector<MicrobatchKey> taken;
    for (std::size_t i = 0; i < first.size() + 2; ++i) taken.push_back(prefetcher.take(in(seconds(30)))->key());
    std::vector<MicrobatchKey> expected{{Step{8}, LaneId{0}, 0}, {Step{8}, LaneId{1}, 0}};
    if (!first.empty()) expected.insert(expected.begin(), {Step{7}, LaneId{1}, 0});
    EXPECT_EQ(taken, expected);
  }
}

TEST(Prefetcher, an_error_of_the_source_comes_after_the_microbatches_before_it) {
  const auto source = std::make_shared<FakeSource>();
  source->before_fill = [](MicrobatchKey, int call) -> Result<void> {
    if (call < 2) return {};
    return Error{ErrorAction::tell_user, "token 9 is outside"};
  };
  Prefetcher prefetcher(source, {{LaneId{0}, 0}}, Step{0}, 4);
  EXPECT_TRUE(prefetcher.take(in(seconds(30))).ok());
  EXPECT_TRUE(prefetcher.take(in(seconds(30))).ok());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(prefetcher.take(in(seconds(30))).error().message, "token 9 is outside");
}

TEST(Prefetcher, stop_ends_a_take_that_waits) {
  const auto source = std::make_shared<FakeSource>();
  Event entered;
  Event released;
  source->before_fill = [&](MicrobatchKey, int) {
    entered.signal();
    return released.wait(kNoDeadline);
  };
  Prefetcher prefetcher(source, {{LaneId{0}, 0}}, Step{0}, 1);
  std::thread taker([&] { EXPECT_EQ(prefetcher.take(kNoDeadline).error().action, ErrorAction::cancelled); });
  ASSERT_TRUE(entered.wait(in(seconds(30))).ok());
  EXPECT_EQ(prefetcher.stop(in(milliseconds(1))).error().action, ErrorAction::restart_process);
  taker.join();
  released.signal();
  EXPECT_TRUE(prefetcher.stop(in(seconds(30))).ok());
}

TEST(Prefetcher, stop_returns_by_its_deadline_though_a_read_hangs) {
  const auto source = std::make_shared<FakeSource>();
  Event entered;
  const Event released;
  // The left-behind thread may outlive this function: it holds copies.
  source->before_fill = [=](MicrobatchKey, int) mutable {
    entered.signal();
    return released.wait(kNoDeadline);
  };
  {
    Prefetcher prefetcher(source, {{LaneId{0}, 0}}, Step{0}, 1);
    ASSERT_TRUE(entered.wait(in(seconds(30))).ok());
    EXPECT_EQ(prefetcher.stop(in(milliseconds(1))).error().action, ErrorAction::restart_process);
  }
  Event(released).signal();
}

TEST(Prefetcher, a_lease_outlives_its_prefetcher) {
  const auto source = std::make_shared<FakeSource>();
  auto prefetcher = std::make_unique<Prefetcher>(source, std::vector<MicrobatchSlot>{{LaneId{0}, 0}}, Step{0}, 1);
  auto lease = prefetcher->take(in(seconds(30)));
  ASSERT_TRUE(lease.ok());
  prefetcher.reset();
  EXPECT_EQ(lease->tokens()[3], 0);
}

}  // namespace
}  // namespace kintsugi
