// What every carrier promises (transport/point_to_point.hpp), over each of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <deque>
#include <future>
#include <thread>

#include "tests/transport/carriers/party.hpp"

namespace kintsugi::transport::test {
namespace {

using ::testing::HasSubstr;

class CarrierTest : public ::testing::TestWithParam<Carrier> {
 protected:
  static constexpr Duration kPatience = seconds(20);  // a bound for slow machines, never waited out

  void open(PartyShape shape = {}) {
    party_ = std::make_unique<Party>(GetParam(), shape);
    ranks_ = party_->open_all();
  }
  PointToPoint& link(std::uint32_t rank) { return *ranks_[rank].link; }
  std::span<std::byte> memory(std::uint32_t rank) { return ranks_[rank].memory.bytes(); }

  SendTicket send(std::uint32_t from, std::uint32_t to, const MessageKey& k, std::span<const std::byte> bytes) {
    auto ticket = link(from).send({to}, k, bytes, in(kPatience));
    EXPECT_TRUE(ticket.ok()) << ticket.error().message;
    return ticket.ok() ? ticket.value() : SendTicket{};
  }
  // Bytes that nobody else keeps stay here until the end: they are lent.
  SendTicket send(std::uint32_t from, std::uint32_t to, const MessageKey& k, std::vector<std::byte>&& bytes) {
    kept_.push_back(std::move(bytes));
    return send(from, to, k, std::span<const std::byte>(kept_.back()));
  }
  SendTicket send(std::uint32_t from, std::uint32_t to, const MessageKey& k) {
    return send(from, to, k, std::span<const std::byte>());
  }
  void expect_received(std::uint32_t at, std::uint32_t from, const MessageKey& k, std::span<const std::byte> expected,
                       std::size_t size) {
    const auto arrival = link(at).receive({from}, k, size, in(kPatience));
    ASSERT_TRUE(arrival.ok()) << arrival.error().message;
    ASSERT_EQ(arrival->bytes.size(), expected.size());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), arrival->bytes.begin()));
    link(at).release(*arrival);
  }

  std::unique_ptr<Party> party_;
  std::deque<std::vector<std::byte>> kept_;
  std::vector<Party::Rank> ranks_;
};

INSTANTIATE_TEST_SUITE_P(, CarrierTest, ::testing::Values(Carrier::shm, Carrier::ucx, Carrier::routed),
                         [](const auto& carrier) { return to_string(carrier.param); });

TEST_P(CarrierTest, messages_are_matched_by_key_whatever_their_order) {
  open();
  std::vector<std::vector<std::byte>> sent;
  for (unsigned i = 0; i < 40; ++i) {
    sent.push_back(pattern(i * i * 37, i));
    send(0, 1, key(1, MessageKind::partial_sum, i), sent.back());
  }
  for (unsigned i = 40; i-- > 0;) {
    expect_received(1, 0, key(1, MessageKind::partial_sum, i), sent[i], sent[i].size());
  }
}

TEST_P(CarrierTest, every_part_of_the_key_counts) {
  open();
  const std::vector<MessageKey> keys = {key(1), key(2), key(1, MessageKind::weights),
                                        key(1, MessageKind::partial_sum, 1), key(1, MessageKind::partial_sum, 0, 1)};
  for (unsigned i = 0; i < keys.size(); ++i) send(0, 1, keys[i], pattern(16, i));
  for (unsigned i = keys.size(); i-- > 0;) expect_received(1, 0, keys[i], pattern(16, i), 16);
}

TEST_P(CarrierTest, empty_messages_arrive) {
  open();
  send(0, 1, key(1));
  expect_received(1, 0, key(1), {}, 0);
  send(1, 0, key(1));
  expect_received(0, 1, key(1), {}, kAnySize);
}

TEST_P(CarrierTest, sizes_around_every_threshold_arrive_from_lent_and_from_other_memory) {
  open();
  unsigned step = 0;
  for (const std::size_t size : {1U, 247U, 248U, 249U, 7999U, 8000U, 8001U, 65536U, 1000001U}) {
    const auto bytes = pattern(size, ++step);
    send(0, 1, key(step), bytes);
    expect_received(1, 0, key(step), bytes, size);
    std::copy(bytes.begin(), bytes.end(), memory(0).begin() + 64);
    const auto ticket = send(0, 1, key(step, MessageKind::weights), memory(0).subspan(64, size));
    expect_received(1, 0, key(step, MessageKind::weights), bytes, size);
    EXPECT_TRUE(link(0).wait_sent(ticket, in(kPatience)).ok());
  }
}

TEST_P(CarrierTest, a_hundred_megabytes_arrive_whole) {
  open();
  constexpr std::size_t size = 100'000'000;
  const auto bytes = pattern(size, 5);
  std::copy(bytes.begin(), bytes.end(), memory(0).begin());
  const auto ticket = send(0, 1, key(1), memory(0).first(size));
  expect_received(1, 0, key(1), bytes, size);
  EXPECT_TRUE(link(0).wait_sent(ticket, in(kPatience)).ok());
}

TEST_P(CarrierTest, any_size_stops_at_the_small_message_limit) {
  open();
  const auto small = pattern(kMaxSmallMessageBytes, 1);
  const auto large = pattern(kMaxSmallMessageBytes + 1, 2);
  send(0, 1, key(1), small);
  const auto ticket = send(0, 1, key(2), large);
  expect_received(1, 0, key(1), small, kAnySize);
  const auto refused = link(1).receive({0}, key(2), kAnySize, in(kPatience));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().action, ErrorAction::end_generation);
  expect_received(1, 0, key(2), large, large.size());
  EXPECT_TRUE(link(0).wait_sent(ticket, in(kPatience)).ok());
}

TEST_P(CarrierTest, a_wrong_size_is_named) {
  open();
  send(0, 1, key(9, MessageKind::weights, 3), pattern(100, 1));
  const auto arrival = link(1).receive({0}, key(9, MessageKind::weights, 3), 96, in(kPatience));
  ASSERT_FALSE(arrival.ok());
  EXPECT_EQ(arrival.error().action, ErrorAction::end_generation);
  EXPECT_THAT(arrival.error().message, HasSubstr("rank 0 sent 100 B as weights of step 9 (item 3, part 0)"));
  EXPECT_THAT(arrival.error().message, HasSubstr("96 B"));
}

TEST_P(CarrierTest, a_wait_ends_at_its_deadline_and_names_what_it_waited_for) {
  open();
  const Instant before = SteadyClock().now();
  const auto arrival = link(0).receive({1}, key(4, MessageKind::activation, 2, 5), 8, in(milliseconds(30)));
  EXPECT_GE((SteadyClock().now() - before).ns, milliseconds(30).ns);
  ASSERT_FALSE(arrival.ok());
  EXPECT_EQ(arrival.error().action, ErrorAction::end_generation);
  EXPECT_THAT(arrival.error().message, HasSubstr("rank 1"));
  EXPECT_THAT(arrival.error().message, HasSubstr("activation of step 4 (item 2, part 5)"));
}

TEST_P(CarrierTest, a_message_that_came_in_time_is_given_after_any_deadline) {
  open();
  send(0, 1, key(1), pattern(8, 1));
  expect_received(1, 0, key(1), pattern(8, 1), 8);
  send(0, 1, key(2), pattern(8, 2));
  send(0, 1, key(3));
  expect_received(1, 0, key(3), {}, 0);  // so the one before is here too
  const auto arrival = link(1).receive({0}, key(2), 8, Instant{1});
  EXPECT_TRUE(arrival.ok());
}

TEST_P(CarrierTest, cancel_from_another_thread_ends_every_wait_within_50_ms) {
  open({.window = 2});
  send(0, 1, key(1));
  send(0, 1, key(2));
  std::vector<std::future<Result<void>>> waits;
  const auto wait = [&](auto call) { waits.push_back(std::async(std::launch::async, call)); };
  wait([&]() -> Result<void> {
    KINTSUGI_TRY(link(0).receive({1}, key(7), 8, kNoDeadline));
    return {};
  });
  wait([&]() -> Result<void> {
    KINTSUGI_TRY(link(0).receive({1}, key(8), kAnySize, in(seconds(100))));
    return {};
  });
  wait([&]() -> Result<void> {
    KINTSUGI_TRY(link(0).send({1}, key(3), {}, kNoDeadline));
    return {};
  });
  EXPECT_EQ(waits[0].wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  const Instant before = SteadyClock().now();
  link(0).cancel({ErrorAction::cancelled, "first reason"});
  link(0).cancel({ErrorAction::end_generation, "second reason"});
  for (auto& w : waits) EXPECT_EQ(w.get().error().message, "first reason");
  EXPECT_LT((SteadyClock().now() - before).ns, milliseconds(50).ns);
  EXPECT_EQ(link(0).receive({1}, key(9), 8, kNoDeadline).error().message, "first reason");
  EXPECT_EQ(link(0).send({1}, key(9), {}, kNoDeadline).error().action, ErrorAction::cancelled);
}

TEST_P(CarrierTest, a_full_queue_blocks_the_sender_until_a_release) {
  open({.window = 4});
  for (unsigned i = 0; i < 4; ++i) send(0, 1, key(i), pattern(300, i));
  const auto blocked = link(0).send({1}, key(4), pattern(300, 4), in(milliseconds(20)));
  ASSERT_FALSE(blocked.ok());
  EXPECT_THAT(blocked.error().message, HasSubstr("rank 1"));
  auto waiting = std::async(std::launch::async, [&] { return link(0).send({1}, key(5), {}, in(kPatience)).ok(); });
  expect_received(1, 0, key(2), pattern(300, 2), 300);  // not the oldest: none holds another up
  EXPECT_TRUE(waiting.get());
  expect_received(1, 0, key(5), {}, 0);
}

TEST_P(CarrierTest, bytes_may_be_overwritten_once_sent_even_if_others_are_held) {
  open();
  const auto first = pattern(200'000, 1);
  const auto second = pattern(200'000, 2);
  const auto bytes = memory(0).first(first.size());
  const auto other = memory(0).subspan(1 << 20, second.size());
  std::copy(first.begin(), first.end(), bytes.begin());
  std::copy(second.begin(), second.end(), other.begin());
  send(0, 1, key(1), bytes);
  const auto ticket = send(0, 1, key(2), other);
  const auto held = link(1).receive({0}, key(1), first.size(), in(kPatience));
  ASSERT_TRUE(held.ok());
  expect_received(1, 0, key(2), second, second.size());
  ASSERT_TRUE(link(0).wait_sent(ticket, in(kPatience)).ok());
  std::fill(other.begin(), other.end(), std::byte{0});
  EXPECT_TRUE(std::equal(first.begin(), first.end(), held->bytes.begin()));
  link(1).release(*held);
}

TEST_P(CarrierTest, another_generation_is_dropped_and_counted) {
  Fence older = kFence;
  --older.generation.counter;
  Party party(GetParam(), {.ranks = 3});
  ranks_ = party.open_all({kFence, older, kFence});
  for (unsigned i = 0; i < 3; ++i) send(1, 0, key(i), pattern(100, 1));
  send(2, 0, key(1), pattern(100, 2));
  expect_received(0, 2, key(1), pattern(100, 2), 100);
  const auto stale = [&] { return link(0).traffic()[{1}].stale_dropped; };
  const Instant until = in(kPatience);
  while (stale() < 3 && SteadyClock().now() < until) {
    EXPECT_FALSE(link(0).receive({1}, key(0), 100, in(milliseconds(5))).ok());
  }
  EXPECT_GE(stale(), 3U);
}

TEST_P(CarrierTest, traffic_is_counted_by_peer) {
  open({.ranks = 3});
  send(0, 1, key(1), pattern(1000, 1));
  send(0, 1, key(2), pattern(20'000, 1));
  send(0, 2, key(1));
  expect_received(1, 0, key(1), pattern(1000, 1), 1000);
  expect_received(1, 0, key(2), pattern(20'000, 1), 20'000);
  const auto sent = link(0).traffic();
  EXPECT_EQ(sent.at({1}).bytes_sent, 21'000U);
  EXPECT_EQ(sent.at({1}).messages_sent, 2U);
  EXPECT_EQ(sent.at({2}).messages_sent, 1U);
  const auto received = link(1).traffic();
  EXPECT_EQ(received.at({0}).bytes_received, 21'000U);
  EXPECT_EQ(received.at({0}).messages_received, 2U);
}

TEST_P(CarrierTest, many_messages_both_ways_keep_their_bytes) {
  open({.window = 16});
  const auto run = [&](std::uint32_t self, std::uint32_t other) {
    for (unsigned i = 0; i < 2000; ++i) {
      const std::size_t size = (i * 131) % 20'000;
      const auto mine = pattern(size, i + self);
      const auto ticket = send(self, other, key(i), std::span<const std::byte>(mine));
      expect_received(self, other, key(i), pattern(size, i + other), size);
      EXPECT_TRUE(link(self).wait_sent(ticket, in(kPatience)).ok());
    }
  };
  std::thread peer(run, 1, 0);
  run(0, 1);
  peer.join();
}

TEST_P(CarrierTest, a_waiting_rank_uses_less_than_two_percent_of_a_core) {
  open();
  const auto cpu = [] {
    rusage u{};
    getrusage(RUSAGE_SELF, &u);
    return seconds(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + Duration{(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000};
  };
  const Duration before = cpu();
  const auto idle = link(0).receive({1}, key(1), 8, in(milliseconds(1000)));
  EXPECT_FALSE(idle.ok());
  EXPECT_LT((cpu() - before).ns, milliseconds(20).ns);
}

}  // namespace
}  // namespace kintsugi::transport::test
