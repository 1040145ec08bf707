#include "engine/pipeline/vote_gate.hpp"

#include <gtest/gtest.h>

#include <future>

namespace kintsugi {
namespace {

constexpr Instant kParkAt{1'000};

TEST(VoteGate, is_open_while_there_is_a_supervisor_and_until_the_limit_without_one) {
  ManualClock clock;
  VoteGate gate(clock);
  EXPECT_TRUE(gate.pass());
  gate.set({true, kParkAt});
  EXPECT_TRUE(gate.is_lost());
  EXPECT_TRUE(gate.pass());
  clock.advance(Duration{5'000});
  gate.set({});
  EXPECT_FALSE(gate.is_lost());
  EXPECT_TRUE(gate.pass());
}

TEST(VoteGate, holds_a_vote_past_the_limit_until_a_supervisor_is_back) {
  ManualClock clock;
  clock.advance(kParkAt - Instant{});
  VoteGate gate(clock);
  gate.set({true, kParkAt});
  std::future<Result<void>> vote = std::async(std::launch::async, [&] { return gate.pass(); });
  EXPECT_EQ(vote.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  gate.set({});
  EXPECT_TRUE(vote.get());
}

TEST(VoteGate, a_cancelled_vote_ends_parked_or_not) {
  ManualClock clock;
  clock.advance(kParkAt - Instant{});
  VoteGate gate(clock);
  gate.set({true, kParkAt});
  std::future<Result<void>> vote = std::async(std::launch::async, [&] { return gate.pass(); });
  gate.cancel({ErrorAction::cancelled, "the process ends"});
  EXPECT_EQ(vote.get().error().message, "the process ends");
  gate.set({});
  EXPECT_FALSE(gate.pass());
}

}  // namespace
}  // namespace kintsugi
