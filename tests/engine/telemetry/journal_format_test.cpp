#include "engine/telemetry/journal_format.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/telemetry/journal_cases.hpp"

namespace kintsugi {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kCluster = 0x1234;

struct Written {
  Bytes bytes;
  std::vector<std::size_t> ends;  // of the header, then of each frame
};

enum class Synced { always, never };

// One of each kind of entry, each synced before the next was written, or none.
Written written(Synced synced, std::uint64_t cluster = kCluster) {
  const JournalFormat format(cluster);
  Written out{{format.header().begin(), format.header().end()}, {format.header().size()}};
  for (const JournalEntry& entry : journal_cases::one_of_each()) {
    const Bytes frame = *format.frame(entry, out.bytes.size(), synced == Synced::always ? out.bytes.size() : 0);
    out.bytes.insert(out.bytes.end(), frame.begin(), frame.end());
    out.ends.push_back(out.bytes.size());
  }
  return out;
}

bool is_prefix_of_what_was_written(const std::vector<JournalEntry>& entries) {
  const std::vector<JournalEntry> all = journal_cases::one_of_each();
  return entries.size() <= all.size() && std::equal(entries.begin(), entries.end(), all.begin());
}

std::string refusal(const Bytes& bytes) {
  const Result<JournalContents> contents = parse_journal(bytes, "S/journal");
  EXPECT_FALSE(contents.ok());
  return contents.ok() ? "" : contents.error().message;
}

TEST(JournalFormat, a_journal_is_read_back_whole) {
  const Written w = written(Synced::always);
  const Result<JournalContents> contents = parse_journal(w.bytes, "S/journal");
  ASSERT_TRUE(contents.ok()) << contents.error().message;
  EXPECT_EQ(contents->cluster_id, kCluster);
  EXPECT_EQ(contents->entries, journal_cases::one_of_each());
  EXPECT_EQ(contents->good_bytes, w.bytes.size());
  EXPECT_EQ(contents->dropped_bytes, 0u);
  EXPECT_EQ(*JournalFormat(kCluster).file(contents->entries), w.bytes);
}

TEST(JournalFormat, cut_at_any_byte_it_keeps_every_entry_before_the_cut_and_counts_the_rest) {
  for (const Synced synced : {Synced::always, Synced::never}) {
    const Written w = written(synced);
    for (std::size_t cut = w.ends[0]; cut <= w.bytes.size(); ++cut) {
      const Result<JournalContents> contents = parse_journal(std::span(w.bytes).first(cut), "S/journal");
      ASSERT_TRUE(contents.ok()) << "cut at " << cut << ": " << contents.error().message;
      const auto whole = std::upper_bound(w.ends.begin(), w.ends.end(), cut) - w.ends.begin() - 1;
      EXPECT_EQ(contents->entries.size(), static_cast<std::size_t>(whole)) << "cut at " << cut;
      EXPECT_TRUE(is_prefix_of_what_was_written(contents->entries)) << "cut at " << cut;
      EXPECT_EQ(contents->good_bytes, w.ends[static_cast<std::size_t>(whole)]) << "cut at " << cut;
      EXPECT_EQ(contents->good_bytes + contents->dropped_bytes, cut);
    }
  }
}

TEST(JournalFormat, a_header_is_whole_or_refused_for_it_is_published_whole) {
  const Written w = written(Synced::always);
  for (std::size_t cut = 0; cut < w.ends[0]; ++cut) {
    EXPECT_FALSE(parse_journal(std::span(w.bytes).first(cut), "S/journal").ok()) << "cut at " << cut;
  }
}

TEST(JournalFormat, any_flipped_bit_is_a_refusal_or_a_dropped_tail_and_never_another_entry) {
  for (const Synced synced : {Synced::always, Synced::never}) {
    Written w = written(synced);
    for (std::size_t bit = 0; bit < 8 * w.bytes.size(); ++bit) {
      std::byte& byte = w.bytes[bit / 8];
      byte ^= std::byte{1} << (bit % 8);
      const Result<JournalContents> contents = parse_journal(w.bytes, "S/journal");
      byte ^= std::byte{1} << (bit % 8);
      if (!contents) continue;
      EXPECT_LT(contents->entries.size(), journal_cases::one_of_each().size()) << "bit " << bit;
      EXPECT_TRUE(is_prefix_of_what_was_written(contents->entries)) << "bit " << bit;
      EXPECT_GT(contents->dropped_bytes, 0u) << "bit " << bit;
    }
  }
}

// The last frame alone could be torn: nothing says that anybody was promised it.
TEST(JournalFormat, damage_to_what_was_synced_is_refused_wherever_it_is_but_in_the_last_frame) {
  Written w = written(Synced::always);
  const std::size_t last = w.ends[w.ends.size() - 2];
  for (std::size_t at = w.ends[0]; at < w.bytes.size(); ++at) {
    w.bytes[at] ^= std::byte{0x10};
    const Result<JournalContents> contents = parse_journal(w.bytes, "S/journal");
    EXPECT_EQ(contents.ok(), at >= last) << "byte " << at;
    w.bytes[at] ^= std::byte{0x10};
  }
  w.bytes[w.ends[1] + 30] ^= std::byte{1};
  EXPECT_NE(refusal(w.bytes).find("S/journal: damaged at byte " + std::to_string(w.ends[1]) +
                                  ", and good entries follow; restore"),
            std::string::npos);
}

// A crash of the machine may lose a page and keep the one after it.
TEST(JournalFormat, a_hole_in_what_was_never_synced_is_a_torn_tail) {
  Written w = written(Synced::never);
  std::fill(w.bytes.begin() + static_cast<std::ptrdiff_t>(w.ends[2]),
            w.bytes.begin() + static_cast<std::ptrdiff_t>(w.ends[3]), std::byte{0});
  const Result<JournalContents> contents = parse_journal(w.bytes, "S/journal");
  ASSERT_TRUE(contents.ok()) << contents.error().message;
  EXPECT_EQ(contents->entries.size(), 2u);
  EXPECT_EQ(contents->dropped_bytes, w.bytes.size() - w.ends[2]);
}

TEST(JournalFormat, a_frame_repeated_moved_or_of_another_journal_is_no_entry) {
  const Written w = written(Synced::always);
  const auto at = [](const Bytes& bytes, std::size_t i) { return bytes.begin() + static_cast<std::ptrdiff_t>(i); };
  const auto accepted = [](const Bytes& bytes) {
    const Result<JournalContents> contents = parse_journal(bytes, "S/journal");
    return contents ? contents->entries.size() : 0;
  };
  Bytes repeated = w.bytes;
  repeated.insert(repeated.end(), at(w.bytes, w.ends[w.ends.size() - 2]), w.bytes.end());
  EXPECT_EQ(accepted(repeated), journal_cases::one_of_each().size());

  Bytes without_the_second = w.bytes;
  without_the_second.erase(at(without_the_second, w.ends[1]), at(without_the_second, w.ends[2]));
  EXPECT_EQ(accepted(without_the_second), 1u);

  const Written other = written(Synced::always, kCluster + 1);
  Bytes mixed(w.bytes.begin(), at(w.bytes, w.ends[3]));
  mixed.insert(mixed.end(), at(other.bytes, w.ends[3]), other.bytes.end());
  EXPECT_EQ(accepted(mixed), 3u);
}

TEST(JournalFormat, another_version_and_other_files_are_refused_with_what_to_do) {
  Bytes newer = written(Synced::always).bytes;
  newer[8] = std::byte{7};
  EXPECT_EQ(refusal(newer),
            "S/journal: a journal of version 7, this kintsugi reads version 1; use the kintsugi that wrote it");
  EXPECT_EQ(refusal(Bytes(100, std::byte{'x'})),
            "S/journal: this is no journal of kintsugi; if the cluster's history may be lost, move the file away");
}

TEST(JournalFormat, an_entry_over_the_limit_is_an_error_that_says_so) {
  const JournalFormat format(kCluster);
  const auto frame = format.frame(journal_cases::note(std::string(kJournalEntryLimit, 'x')), 32, 32);
  ASSERT_FALSE(frame.ok());
  EXPECT_NE(frame.error().message.find("the limit is 16.0 MiB"), std::string::npos) << frame.error().message;
}

}  // namespace
}  // namespace kintsugi
