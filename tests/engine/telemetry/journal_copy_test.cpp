#include "engine/telemetry/journal_copy.hpp"

#include <gtest/gtest.h>

#include "engine/telemetry/journal.hpp"
#include "engine/telemetry/journal_state.hpp"
#include "tests/base/temporary_folder.hpp"
#include "tests/engine/telemetry/journal_cases.hpp"

namespace kintsugi {
namespace {

using journal_cases::note;

constexpr std::uint64_t kCluster = 0xc1;

JournalPiece more(std::uint32_t epoch, std::uint64_t up_to, const std::vector<JournalEntry>& entries) {
  JournalPiece piece{kCluster, epoch, false, up_to, {}};
  for (const JournalEntry& entry : entries) piece.entries.push_back(encode_entry(entry));
  return piece;
}

TEST(JournalCopy, comes_whole_and_grows_entry_by_entry) {
  const std::vector<JournalEntry> all = journal_cases::one_of_each();
  JournalCopy copy;
  EXPECT_EQ(copy.stamp(), JournalStamp{});
  for (const JournalPiece& piece : journal_pieces(kCluster, {3, 40}, all)) ASSERT_TRUE(copy.take(piece));
  EXPECT_EQ(copy.entries(), all);
  EXPECT_EQ(copy.stamp(), (JournalStamp{3, 40}));
  ASSERT_TRUE(copy.take(more(3, 42, {note("a"), note("b")})));
  EXPECT_EQ(copy.stamp(), (JournalStamp{3, 42}));
  EXPECT_EQ(copy.entries().back(), note("b"));
}

TEST(JournalCopy, a_large_one_comes_in_pieces_and_counts_once_it_is_whole) {
  const std::vector<JournalEntry> all(5, note(std::string(kJournalPieceBytes / 2, 'x')));
  const std::vector<JournalPiece> pieces = journal_pieces(kCluster, {2, 9}, all);
  ASSERT_EQ(pieces.size(), 3u);
  JournalCopy copy;
  ASSERT_TRUE(copy.take(journal_pieces(kCluster, {1, 5}, std::vector{note("old")}).front()));
  for (const JournalPiece& piece : pieces) {
    EXPECT_EQ(copy.stamp(), (JournalStamp{1, 5})) << "a supervisor that is lost half-way leaves the old one";
    ASSERT_TRUE(copy.take(piece));
  }
  EXPECT_EQ(copy.stamp(), (JournalStamp{2, 9}));
  EXPECT_EQ(copy.entries(), all);
}

TEST(JournalCopy, what_is_out_of_turn_or_damaged_changes_nothing) {
  JournalCopy copy;
  EXPECT_FALSE(copy.take(more(1, 1, {note("before any copy")})));
  ASSERT_TRUE(copy.take(journal_pieces(kCluster, {1, 5}, std::vector{note("a")}).front()));
  EXPECT_FALSE(copy.take(more(1, 7, {note("6 is missing")})));
  EXPECT_FALSE(copy.take(more(2, 6, {note("of another supervisor")})));
  JournalPiece damaged = more(1, 6, {note("b")});
  damaged.entries.front().resize(3);
  EXPECT_FALSE(copy.take(damaged));
  JournalPiece foreign = more(1, 6, {note("b")});
  foreign.cluster_id = kCluster + 1;
  EXPECT_FALSE(copy.take(foreign));
  EXPECT_EQ(copy.entries(), std::vector{note("a")});
  EXPECT_TRUE(copy.take(more(1, 6, {note("b")})));
}

TEST(JournalCopy, stays_bounded_and_means_the_same) {
  JournalCopy copy;
  std::vector<JournalEntry> all;
  for (std::uint64_t n = 0; n < 200; ++n) all.push_back(journal_cases::random_entry(5, n));
  ASSERT_TRUE(copy.take(journal_pieces(kCluster, {1, 200}, all).front()));
  for (std::uint64_t n = 200; n < 60'000; ++n) {
    all.push_back(journal_cases::random_entry(5, n));
    ASSERT_TRUE(copy.take(more(1, n + 1, {all.back()})));
    ASSERT_LT(copy.entries().size(), 20'000u);
  }
  EXPECT_EQ(restart_state(copy.entries()), restart_state(all));
}

TEST(JournalCopy, a_supervisor_goes_on_with_it_where_there_is_no_journal) {
  const TemporaryFolder folder;
  const std::string state = folder.file("new");
  const std::vector<JournalEntry> entries{{7, journaled::Started{.epoch = 2, .cluster_id = kCluster}}, note("a")};
  ASSERT_TRUE(Journal::restore(state, kCluster, entries));
  EXPECT_FALSE(Journal::restore(state, kCluster, entries)) << "there is one";
  const Result<Journal> journal = Journal::open(state, {.wall_ns = 8, .new_cluster_id = 5, .least_epoch = 1000});
  ASSERT_TRUE(journal) << journal.error().message;
  EXPECT_EQ(journal->cluster_id(), kCluster);
  EXPECT_EQ(journal->epoch(), 1000u);
  EXPECT_EQ(journal->found().tenures, (std::vector<Tenure>{{2, {7}}}));
  EXPECT_EQ(read_journal(state)->entries.size(), 3u);
}

}  // namespace
}  // namespace kintsugi
