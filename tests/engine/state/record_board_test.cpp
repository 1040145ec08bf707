#include "engine/state/record_board.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

namespace kintsugi {
namespace {

using Bytes = std::vector<std::byte>;

Bytes record(std::uint64_t number, std::size_t bytes = 241) {
  return Bytes(bytes, static_cast<std::byte>(number));
}

class RecordBoardTest : public testing::Test {
 protected:
  std::span<std::byte> memory() { return std::span(memory_).first(RecordBoard::bytes()); }
  RecordBoard board() { return RecordBoard(memory()); }
  alignas(64) std::byte memory_[RecordBoard::bytes()] = {};
};

TEST_F(RecordBoardTest, fresh_memory_holds_no_record) {
  EXPECT_EQ(board().newest(), std::nullopt);
}

TEST_F(RecordBoardTest, the_newest_record_is_read_by_whoever_maps_the_memory) {
  for (std::uint64_t number = 1; number < 6; ++number) {
    board().write(record(number, 8 * number + number));
    EXPECT_EQ(board().newest(), record(number, 8 * number + number));
  }
  board().write(record(7, RecordBoard::kMaxBytes));
  EXPECT_EQ(board().newest(), record(7, RecordBoard::kMaxBytes));
}

TEST_F(RecordBoardTest, records_before_the_newest_are_there_as_far_as_the_ring_goes) {
  EXPECT_TRUE(board().all().empty());
  for (std::uint64_t number = 1; number <= RecordBoard::kSlots + 5; ++number) board().write(record(number));
  const std::vector<Bytes> all = board().all();
  ASSERT_EQ(all.size(), RecordBoard::kSlots);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], record(i + 6));
}

// The image after a death inside a write: any of its words may be missing.
TEST_F(RecordBoardTest, a_write_that_was_cut_off_anywhere_leaves_the_record_before) {
  board().write(record(1));
  board().write(record(2));
  Bytes before(memory().begin(), memory().end());
  board().write(record(3));
  const Bytes after(memory().begin(), memory().end());
  std::size_t torn = 0;
  for (std::size_t at = 0; at < before.size(); at += 8) {
    if (std::equal(&before[at], &before[at] + 8, &after[at])) continue;
    std::ranges::copy(after, memory().begin());
    std::memcpy(&memory_[at], &before[at], 8);
    EXPECT_EQ(board().newest(), record(2)) << "word " << at / 8;
    ++torn;
  }
  EXPECT_GT(torn, 30U);
}

TEST_F(RecordBoardTest, a_reader_beside_the_writer_sees_whole_records_that_never_go_back) {
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (std::uint64_t number = 1; number < 250; ++number) board().write(record(number));
    done = true;
  });
  std::uint64_t last = 0;
  while (!done || last == 0) {
    const std::optional<Bytes> seen = board().newest();
    if (!seen) continue;
    const std::uint64_t number = static_cast<std::uint64_t>(seen->front());
    ASSERT_EQ(*seen, record(number));
    ASSERT_GE(number, last);
    last = number;
  }
  writer.join();
}

}  // namespace
}  // namespace kintsugi
