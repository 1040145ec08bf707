// What is particular to shared memory: garbage from a peer, allocation in the bounce area, sealed memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <map>

#include "base/philox.hpp"
#include "tests/transport/carriers/party.hpp"
#include "transport/shm/shm_carrier.hpp"

namespace kintsugi::transport::shm {
namespace {

using test::in;
using test::key;
using ::testing::HasSubstr;

// Rank 1 as its worst: it writes to the segment what it likes. Rank 0 is the carrier under test.
class GarbageTest : public ::testing::Test {
 protected:
  GarbageTest() : party_(test::Carrier::shm, {.ranks = 2, .window = 8, .memory_bytes = 4096}), rank_(party_.open(0)) {
    auto attached = RingSegment::attach(party_.ring_segment());
    segment_ = std::make_unique<RingSegment>(std::move(attached).value());
  }

  static Descriptor sound() {
    Descriptor d{};
    d.fence = test::kFence;
    d.key = key(1);
    return d;
  }
  void write(const Descriptor& d) {
    RingIndex& index = segment_->index(1, 0);
    const std::uint64_t n = index.sent.load() + 1;
    std::memcpy(&segment_->descriptor(1, 0, n), &d, sizeof d);
    index.sent.store(n);
  }
  void expect_the_generation_ends(const char* reason) {
    const auto arrival = rank_.link->receive({1}, key(7), 8, in(seconds(20)));
    ASSERT_FALSE(arrival.ok());
    EXPECT_EQ(arrival.error().action, ErrorAction::end_generation);
    EXPECT_THAT(arrival.error().message, HasSubstr("rank 1 wrote garbage"));
    EXPECT_THAT(arrival.error().message, HasSubstr(reason));
    EXPECT_FALSE(rank_.link->send({1}, key(1), {}, in(seconds(20))).ok());
  }

  test::Party party_;
  test::Party::Rank rank_;
  std::unique_ptr<RingSegment> segment_;
};

TEST_F(GarbageTest, an_inline_length_beyond_the_descriptor_ends_the_generation) {
  Descriptor d = sound();
  d.length = kInlineBytes + 1;
  write(d);
  expect_the_generation_ends("inline length");
}

TEST_F(GarbageTest, bytes_beyond_the_arena_end_the_generation) {
  Descriptor d = sound();
  d.region = kFirstArena;
  d.offset = 4096;
  d.length = 1;
  write(d);
  expect_the_generation_ends("beyond their region");
}

TEST_F(GarbageTest, a_length_that_wraps_around_ends_the_generation) {
  Descriptor d = sound();
  d.region = kBounce;
  d.offset = 64;
  d.length = UINT64_MAX - 32;
  write(d);
  expect_the_generation_ends("beyond their region");
}

TEST_F(GarbageTest, an_unknown_arena_ends_the_generation) {
  Descriptor d = sound();
  d.region = UINT32_MAX;
  write(d);
  expect_the_generation_ends("arena");
}

TEST_F(GarbageTest, a_message_sent_twice_ends_the_generation) {
  write(sound());
  write(sound());
  expect_the_generation_ends("sent twice");
}

TEST_F(GarbageTest, counts_out_of_range_end_the_generation) {
  segment_->index(1, 0).sent.store(9);  // one beyond the window
  expect_the_generation_ends("message count");
}

TEST_F(GarbageTest, counts_that_go_back_end_the_generation) {
  segment_->index(1, 0).sent.store(UINT64_MAX);
  expect_the_generation_ends("message count");
}

TEST_F(GarbageTest, a_credit_never_given_ends_the_generation) {
  segment_->index(0, 1).returned.store(1);
  expect_the_generation_ends("credit");
}

TEST_F(GarbageTest, random_descriptors_never_crash) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const test::Party party(test::Carrier::shm, {.ranks = 2, .window = 8, .memory_bytes = 4096});
    const auto rank = party.open(0);
    auto segment = RingSegment::attach(party.ring_segment());
    for (std::uint64_t n = 1; n <= 8; ++n) {
      Descriptor d = sound();
      d.key.item = static_cast<std::uint32_t>(n);
      d.region = static_cast<std::uint32_t>(philox_u64(philox_key(seed), n, 0) % 4);
      d.offset = philox_u64(philox_key(seed), n, 1) >> (philox_u64(philox_key(seed), n, 3) % 64);
      d.length = philox_u64(philox_key(seed), n, 2) >> (philox_u64(philox_key(seed), n, 4) % 64);
      std::memcpy(&segment->descriptor(1, 0, n), &d, sizeof d);
    }
    segment->index(1, 0).sent.store(8);
    unsigned char sum = 0;
    for (std::uint32_t item = 1; item <= 8; ++item) {
      const auto arrival = rank.link->receive({1}, key(1, MessageKind::partial_sum, item), kAnySize, Instant{1});
      if (!arrival) continue;
      for (const std::byte b : arrival->bytes) sum ^= static_cast<unsigned char>(b);
      rank.link->release(*arrival);
    }
    EXPECT_EQ(sum, 0);  // all of that memory is zero, and all of it could be read
  }
}

TEST(ShmCarrier, a_message_beyond_the_bounce_area_says_what_to_do) {
  const test::Party party(test::Carrier::shm, {});
  const auto ranks = party.open_all();
  const std::vector<std::byte> large((64U << 20) + 1);
  const auto sent = ranks[0].link->send({1}, key(1), large, kNoDeadline);
  ASSERT_FALSE(sent.ok());
  EXPECT_THAT(sent.error().message, HasSubstr("put them in a registered arena"));
}

TEST(ShmCarrier, a_segment_serves_one_carrier_a_rank) {
  auto rings = create_ring_segment({.ranks = 1});
  const ShmCarrier::Config config{{5}, {{5}}, {}};
  const auto first = ShmCarrier::open(config, rings->get());
  EXPECT_TRUE(first.ok());
  EXPECT_FALSE(ShmCarrier::open(config, rings->get()).ok());
  EXPECT_FALSE(ShmCarrier::open({{5}, {{5}, {6}}, {}}, rings->get()).ok());
}

TEST(RingSegment, other_memory_is_refused) {
  const auto memory = create_shared_memory("test", 1 << 20);
  EXPECT_FALSE(RingSegment::attach(memory->get()).ok());
}

TEST(SharedMemory, a_peer_cannot_shrink_what_others_read) {
  const auto memory = create_shared_memory("test", 8192);
  EXPECT_NE(ftruncate(memory->get(), 4096), 0);
  const FileDescriptor unsealed(memfd_create("test", MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 8192), 0);
  ASSERT_TRUE(Mapping::map(unsealed.get(), Access::read).ok());
  EXPECT_NE(ftruncate(unsealed.get(), 4096), 0);
  const FileDescriptor unsealable(memfd_create("test", 0));
  ASSERT_EQ(ftruncate(unsealable.get(), 8192), 0);
  EXPECT_FALSE(Mapping::map(unsealable.get(), Access::read).ok());
}

TEST(BlockAllocator, blocks_never_overlap_and_all_room_comes_back) {
  constexpr std::size_t kArea = 1 << 16;
  BlockAllocator allocator(kArea);
  std::map<std::size_t, std::size_t> taken;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const std::uint64_t draw = philox_u64(philox_key(1), i, 0);
    if (draw % 2 == 0 && !taken.empty()) {
      auto one = taken.lower_bound(draw >> 32 & (kArea - 1));
      if (one == taken.end()) one = taken.begin();
      allocator.give_back(one->first, one->second);
      taken.erase(one);
      continue;
    }
    const std::size_t bytes = 1 + (draw >> 8) % 5000;
    const auto offset = allocator.take(bytes);
    if (!offset) continue;
    ASSERT_EQ(*offset % 64, 0U);
    ASSERT_LE(*offset + bytes, kArea);
    const auto next = taken.lower_bound(*offset);
    ASSERT_TRUE(next == taken.end() || *offset + bytes <= next->first);
    ASSERT_TRUE(next == taken.begin() || std::prev(next)->first + std::prev(next)->second <= *offset);
    taken.emplace(*offset, bytes);
  }
  for (const auto& [offset, bytes] : taken) allocator.give_back(offset, bytes);
  EXPECT_EQ(allocator.take(kArea), 0U);
}

}  // namespace
}  // namespace kintsugi::transport::shm
