#include "engine/state/shard_store.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>

namespace kintsugi {
namespace {

std::vector<Shard> some_shards() {
  return {{ShardId{4}, GroupId{0}, 0, 4096}, {ShardId{5}, GroupId{0}, 4096, 17}, {ShardId{9}, GroupId{2}, 0, 1}};
}

// A segment as the node hands it out: zero, shared with child processes.
class Segment {
 public:
  explicit Segment(std::size_t bytes) : bytes_(bytes) {
    at_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  }
  ~Segment() { ::munmap(at_, bytes_); }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(at_), bytes_}; }

 private:
  void* at_;
  std::size_t bytes_;
};

class ShardStoreTest : public testing::Test {
 protected:
  ShardSlot slot(std::size_t i) const { return {copies_[i]->bytes(), shards_[i]}; }
  // Formats copy i and finishes version 3.
  ShardVersion make_stable(std::size_t i) const {
    const ShardVersion version{Step{3}, 2, shard_digest(slot(i).state()), Incarnation{7}};
    slot(i).format(Incarnation{7});
    slot(i).finish(version);
    return version;
  }
  static std::unique_ptr<Segment> segment_for(const Shard& shard) {
    return std::make_unique<Segment>(ShardStoreLayout(shard).bytes);
  }
  const std::vector<Shard> shards_ = some_shards();
  const std::unique_ptr<Segment> copies_[3] = {segment_for(shards_[0]), segment_for(shards_[1]),
                                               segment_for(shards_[2])};
};

TEST_F(ShardStoreTest, arrays_are_aligned_apart_and_a_function_of_the_shard) {
  for (const Shard& shard : shards_) {
    const ShardStoreLayout layout(shard);
    const std::size_t bytes = static_cast<std::size_t>(shard.count) * 4;
    EXPECT_GE(layout.master, sizeof(ShardHeader));
    EXPECT_GE(layout.moment1, layout.master + bytes);
    EXPECT_GE(layout.moment2, layout.moment1 + bytes);
    EXPECT_EQ(layout.bytes, layout.moment2 + (bytes + 63) / 64 * 64);
    for (const std::size_t at : {layout.master, layout.moment1, layout.moment2}) EXPECT_EQ(at % 64, 0u);
  }
}

TEST_F(ShardStoreTest, fresh_memory_holds_nothing) {
  EXPECT_FALSE(slot(0).is_formatted());
  EXPECT_EQ(slot(0).stable(), std::nullopt);
  EXPECT_EQ(stable_version(copies_[0]->bytes(), shards_[0].id), std::nullopt);
}

TEST_F(ShardStoreTest, a_copy_is_a_holder_only_between_finish_and_begin) {
  slot(1).format(Incarnation{7});
  EXPECT_TRUE(slot(1).is_formatted());
  EXPECT_EQ(slot(1).stable(), std::nullopt);
  const ShardVersion first{Step{3}, 2, {1, 2}, Incarnation{7}};
  slot(1).finish(first);
  EXPECT_EQ(slot(1).stable(), first);
  slot(1).begin(Incarnation{8});
  EXPECT_EQ(slot(1).stable(), std::nullopt);
  EXPECT_FALSE(slot(1).still(first));
  const ShardVersion second{Step{4}, 3, {5, 6}, Incarnation{8}};
  slot(1).finish(second);
  EXPECT_EQ(slot(1).stable(), second);
}

// The node knows no layout of a model: it reads what its dead ranks left by the id alone.
TEST_F(ShardStoreTest, the_bytes_of_a_copy_tell_its_version_to_whoever_knows_its_id) {
  const std::span<const std::byte> bytes = copies_[1]->bytes();
  const ShardVersion version = make_stable(1);
  EXPECT_EQ(stable_version(bytes, shards_[1].id), version);
  EXPECT_EQ(stable_version(bytes, shards_[0].id), std::nullopt);
  EXPECT_EQ(stable_version(bytes.first(sizeof(ShardHeader) - 1), shards_[1].id), std::nullopt);
  slot(1).begin(Incarnation{8});
  EXPECT_EQ(stable_version(bytes, shards_[1].id), std::nullopt);
}

TEST_F(ShardStoreTest, padding_is_zero_after_format) {
  std::ranges::fill(copies_[1]->bytes(), std::byte{0xFF});
  slot(1).format(Incarnation{7});
  const ShardStoreLayout layout(shards_[1]);
  for (const std::size_t at : {layout.master, layout.moment1, layout.moment2}) {
    for (std::size_t i = 17 * 4; i < 128; ++i) ASSERT_EQ(copies_[1]->bytes()[at + i], std::byte{0});
  }
}

TEST_F(ShardStoreTest, a_flipped_bit_of_what_names_the_shard_ends_the_copy) {
  for (std::size_t bit = 0; bit < offsetof(ShardHeader, phase) * 8; ++bit) {
    make_stable(1);
    copies_[1]->bytes()[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_EQ(slot(1).stable(), std::nullopt) << bit;
    ASSERT_EQ(stable_version(copies_[1]->bytes(), shards_[1].id), std::nullopt) << bit;
  }
}

TEST_F(ShardStoreTest, another_cut_of_the_model_finds_no_holder) {
  make_stable(0);
  EXPECT_EQ(ShardSlot(copies_[0]->bytes(), {ShardId{4}, GroupId{0}, 4096, 4096}).stable(), std::nullopt);
}

TEST_F(ShardStoreTest, a_writer_that_dies_in_an_apply_leaves_no_holder_and_the_others_whole) {
  make_stable(0);
  const ShardVersion other = make_stable(1);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    slot(0).begin(Incarnation{8});
    slot(0).state().master[0] = 1.0f;
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(slot(0).state().master[0], 1.0f);
  EXPECT_EQ(slot(0).stable(), std::nullopt);
  EXPECT_EQ(slot(1).stable(), other);
}

// Words of the state are read through relaxed atomics here: a reader's torn copy is legal, only `still` decides.
TEST_F(ShardStoreTest, a_copy_taken_under_one_version_is_never_torn) {
  make_stable(0);
  const std::span<float> master = slot(0).state().master;
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (std::uint64_t version = 4; version < 2000; ++version) {
      slot(0).begin(Incarnation{7});
      for (float& w : master) std::atomic_ref(w).store(static_cast<float>(version), std::memory_order_relaxed);
      slot(0).finish({Step{version}, version, {}, Incarnation{7}});
    }
    done = true;
  });
  std::vector<float> copy(master.size());
  std::uint64_t whole = 0;
  while (!done || whole == 0) {
    const auto seen = slot(0).stable();
    for (std::size_t i = 0; i < copy.size(); ++i) copy[i] = std::atomic_ref(master[i]).load(std::memory_order_relaxed);
    if (!seen || !slot(0).still(*seen)) continue;
    ++whole;
    const float expected = seen->version == Step{3} ? 0.0f : static_cast<float>(seen->version.value);
    ASSERT_TRUE(std::ranges::all_of(copy, [&](float w) { return w == expected; }));
  }
  writer.join();
}

}  // namespace
}  // namespace kintsugi
