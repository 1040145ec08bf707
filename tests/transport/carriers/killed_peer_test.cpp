// A peer process that is killed: ucx says so at once, shm ends the waits by deadline or cancel; nobody else is held up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "tests/transport/carriers/party.hpp"

namespace kintsugi::transport::test {
namespace {

using ::testing::HasSubstr;

// Forked before this process starts any thread.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(fork()) {
    if (pid_ == 0) {
      body();
      _exit(0);
    }
  }
  ~Child() { kill(); }
  void stop() const { ::kill(pid_, SIGSTOP); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_;
};

constexpr std::size_t kLarge = 100'000'000;

// Rank 1 sends one small message, then large ones for ever; rank 2 answers until it, too, is killed.
void flood(const Party& party) {
  auto rank = party.open(1);
  (void)rank.link->send({0}, key(0), {}, kNoDeadline);
  for (unsigned i = 1;; ++i) (void)rank.link->send({0}, key(i), rank.memory.bytes().first(kLarge), kNoDeadline);
}

void echo(const Party& party) {
  auto rank = party.open(2);
  for (unsigned i = 0;; ++i) {
    const auto arrival = rank.link->receive({0}, key(i), kAnySize, kNoDeadline);
    if (!arrival) return;
    (void)rank.link->send({0}, key(i), arrival->bytes, kNoDeadline);
    rank.link->release(*arrival);
  }
}

class KilledPeerTest : public ::testing::TestWithParam<Carrier> {};
INSTANTIATE_TEST_SUITE_P(, KilledPeerTest, ::testing::Values(Carrier::shm, Carrier::ucx),
                         [](const auto& carrier) { return to_string(carrier.param); });

TEST_P(KilledPeerTest, a_peer_killed_in_mid_transfer_blocks_nobody) {
  const Party party(GetParam(), {.ranks = 3, .window = 8});
  Child flooding([&] { flood(party); });
  Child echoing([&] { echo(party); });
  auto rank = party.open(0);
  const auto first = rank.link->receive({1}, key(0), 0, in(seconds(20)));
  ASSERT_TRUE(first.ok()) << first.error().message;
  flooding.kill();

  const Instant killed = SteadyClock().now();
  Result<void> ended;
  for (unsigned i = 1; ended.ok() && i < 100; ++i) {  // what arrived before is still given
    const auto arrival = rank.link->receive({1}, key(i), kLarge, killed + seconds(1));
    if (!arrival)
      ended = arrival.error();
    else
      rank.link->release(*arrival);
  }
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().action, ErrorAction::end_generation);
  EXPECT_THAT(ended.error().message, HasSubstr("rank 1"));
  if (GetParam() == Carrier::ucx) {
    EXPECT_THAT(ended.error().message, HasSubstr("gone"));
    EXPECT_LT((SteadyClock().now() - killed).ns, seconds(1).ns);
    EXPECT_FALSE(rank.link->send({1}, key(1), {}, in(seconds(1))).ok());
  }
  for (unsigned i = 0; i < 20; ++i) {
    const auto bytes = pattern(1000 * i, i);
    ASSERT_TRUE(rank.link->send({2}, key(i), bytes, in(seconds(20))).ok());
    const auto answer = rank.link->receive({2}, key(i), bytes.size(), in(seconds(20)));
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), answer->bytes.begin()));
    rank.link->release(*answer);
  }
}

TEST_P(KilledPeerTest, an_idle_peer_killed_ends_the_wait_for_it) {
  const Party party(GetParam(), {.ranks = 2});
  Child waiting([&] {
    auto rank = party.open(1);
    (void)rank.link->send({0}, key(0), {}, kNoDeadline);
    (void)rank.link->receive({0}, key(0), 0, kNoDeadline);
  });
  auto rank = party.open(0);
  ASSERT_TRUE(rank.link->receive({1}, key(0), 0, in(seconds(20))).ok());
  waiting.kill();
  const Instant killed = SteadyClock().now();
  const auto arrival = rank.link->receive({1}, key(1), 8, in(milliseconds(GetParam() == Carrier::shm ? 100 : 20'000)));
  ASSERT_FALSE(arrival.ok());
  EXPECT_THAT(arrival.error().message, HasSubstr("rank 1"));
  EXPECT_LT((SteadyClock().now() - killed).ns, seconds(1).ns);
}

// As a silent path would look: its sockets stay open.
TEST(StoppedPeer, is_lost_after_the_silence_that_the_carrier_allows) {
  const Party party(Carrier::ucx, {.ranks = 2});
  Child waiting([&] {
    auto rank = party.open(1);
    (void)rank.link->send({0}, key(0), {}, kNoDeadline);
    (void)rank.link->receive({0}, key(0), 0, kNoDeadline);
  });
  auto rank = party.open(0);
  ASSERT_TRUE(rank.link->receive({1}, key(0), 0, in(seconds(20))).ok());
  // Pulses of both keep the connection, however long nobody has anything to say.
  EXPECT_THAT(rank.link->receive({1}, key(1), 8, in(seconds(3))).error().message, HasSubstr("deadline"));
  EXPECT_TRUE(rank.link->lost_peers().empty());
  waiting.stop();
  const Instant stopped = SteadyClock().now();
  const auto arrival = rank.link->receive({1}, key(1), 8, in(seconds(20)));
  ASSERT_FALSE(arrival.ok());
  EXPECT_THAT(arrival.error().message, HasSubstr("nothing was heard"));
  EXPECT_LT((SteadyClock().now() - stopped).ns, seconds(3).ns);  // 1.6 s on a machine that is not busy
  EXPECT_EQ(rank.link->lost_peers(), std::set<RankId>{{1}});
}

}  // namespace
}  // namespace kintsugi::transport::test
