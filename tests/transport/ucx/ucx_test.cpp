// What is particular to UCX: the header, landing memory, errors of set-up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/philox.hpp"
#include "tests/transport/carriers/party.hpp"
#include "transport/ucx/landing_pool.hpp"
#include "transport/ucx/tensor_header.hpp"
#include "transport/ucx/ucx_carrier.hpp"

namespace kintsugi::transport::ucx {
namespace {

using test::in;
using test::key;
using ::testing::HasSubstr;

TEST(TensorHeader, every_field_comes_back) {
  TensorHeader header;
  header.fence = {{1}, {UINT64_MAX}, {2, 3}};
  header.from = {4};
  header.key = {MessageKind::weights, {5}, 6, UINT32_MAX};
  header.bytes = 7;
  header.released = 8;
  const auto decoded = decode(encode(header));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->fence, header.fence);
  EXPECT_EQ(decoded->from, header.from);
  EXPECT_EQ(decoded->key, header.key);
  EXPECT_EQ(decoded->bytes, 7U);
  EXPECT_EQ(decoded->released, 8U);
}

TEST(TensorHeader, any_bytes_are_safe_to_decode) {
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    EncodedHeader bytes = encode({});
    for (std::uint64_t i = 0; i < 1 + seed % 8; ++i) {
      const std::uint64_t draw = philox_u64(philox_key(seed), i, 0);
      bytes[(seed % 3 == 0 ? draw % 8 : draw % bytes.size())] = static_cast<std::byte>(draw >> 32);
    }
    (void)decode(bytes);
    (void)decode(std::span(bytes).first(seed % bytes.size()));
  }
}

TEST(LandingPool, memory_is_reused_and_bounded) {
  LandingPool pool(1 << 20);
  auto a = pool.take(600'000, LandingPool::Demand::within_budget);
  const std::byte* first = a.data;
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0U);
  EXPECT_EQ(pool.take(600'000, LandingPool::Demand::within_budget).data, nullptr);
  auto must = pool.take(600'000, LandingPool::Demand::must);
  EXPECT_NE(must.data, nullptr);
  pool.give_back(std::move(must));
  EXPECT_LE(pool.held_bytes(), std::size_t{1} << 20);
  pool.give_back(std::move(a));
  auto again = pool.take(500'000, LandingPool::Demand::within_budget);
  EXPECT_EQ(again.data, first);
  pool.give_back(std::move(again));
  EXPECT_NE(pool.take(1'000'000, LandingPool::Demand::within_budget).data, nullptr);  // the spare one makes room
}

TEST(UcxContext, an_unknown_interface_is_named) {
  const auto context = UcxContext::create("nosuch0");
  ASSERT_FALSE(context.ok());
  EXPECT_EQ(context.error().action, ErrorAction::tell_user);
  EXPECT_THAT(context.error().message, HasSubstr("nosuch0"));
}

TEST(UcxCarrier, what_was_sent_before_the_end_still_arrives) {
  for (const std::size_t bytes : {100U, 7000U}) {
    const test::Party fresh(test::Carrier::ucx, {});
    auto ranks = fresh.open_all();
    const auto message = test::pattern(bytes, 3);
    ASSERT_TRUE(ranks[0].link->send({1}, key(1), message, in(seconds(20))).ok());
    ranks[0].link.reset();
    const auto arrival = ranks[1].link->receive({0}, key(1), bytes, in(seconds(20)));
    ASSERT_TRUE(arrival.ok()) << arrival.error().message;
    EXPECT_TRUE(std::equal(message.begin(), message.end(), arrival->bytes.begin()));
  }
}

TEST(UcxCarrier, a_peer_that_never_says_a_word_is_lost) {
  const auto context = UcxContext::create("lo");
  ASSERT_TRUE(context.ok());
  const Fence fence{{1}, {1}, {1, 1}};
  const auto mute = UcxCarrier::open({.self = {1}, .fence = fence}, *context);  // it never connects
  const auto carrier = UcxCarrier::open({.self = {0}, .fence = fence, .first_word = milliseconds(300)}, *context);
  ASSERT_TRUE(mute.ok() && carrier.ok());
  ASSERT_TRUE((*carrier)->connect({{{1}, (*mute)->address()}}).ok());
  const auto arrival = (*carrier)->receive({1}, key(1), 8, in(seconds(20)));
  ASSERT_FALSE(arrival.ok());
  EXPECT_EQ(arrival.error().action, ErrorAction::end_generation);
  EXPECT_THAT(arrival.error().message, HasSubstr("nothing was heard"));
}

}  // namespace
}  // namespace kintsugi::transport::ucx
