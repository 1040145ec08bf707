#include "engine/telemetry/journal.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "tests/base/temporary_folder.hpp"
#include "tests/engine/telemetry/journal_cases.hpp"

namespace kintsugi {
namespace {

namespace fs = std::filesystem;
using journal_cases::note;

const JournalStart kStart{.wall_ns = 5, .host = "host", .pid = 7, .version = "0.1", .new_cluster_id = 0xc1};

std::vector<JournalEntry> entries_in(const std::string& directory) {
  const Result<JournalContents> contents = read_journal(directory);
  EXPECT_TRUE(contents.ok()) << contents.error().message;
  return contents ? contents->entries : std::vector<JournalEntry>{};
}

TEST(Journal, a_fresh_one_is_epoch_1_and_every_start_takes_the_next) {
  const TemporaryFolder folder;
  const std::string state = folder.file("deep/state");
  for (std::uint32_t epoch = 1; epoch <= 3; ++epoch) {
    JournalStart start = kStart;
    start.new_cluster_id += epoch;  // counts for the first only
    const Result<Journal> journal = Journal::open(state, start);
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    EXPECT_EQ(journal->epoch(), epoch);
    EXPECT_EQ(journal->found().epoch, epoch - 1);
    EXPECT_EQ(journal->cluster_id(), kStart.new_cluster_id + 1);
    const JournalEntry started{5, journaled::Started{epoch, kStart.new_cluster_id + 1, "host", 7, "0.1"}};
    EXPECT_EQ(entries_in(state).back(), started);
  }
}

TEST(Journal, what_was_appended_is_found_by_the_next_start) {
  const TemporaryFolder folder;
  const std::string state = folder.path().string();
  const journaled::Submitted job{.job = {4}, .job_file = "x: y\n", .ranks = 3};
  const journaled::GenerationMade generation{.job = {4}, .generation = {1, 2}, .next_rank = {5}};
  {
    Result<Journal> journal = Journal::open(state, kStart);
    ASSERT_TRUE(journal->append({1, job}, Durability::durable).ok());
    ASSERT_TRUE(journal->append({2, generation}, Durability::buffered).ok());
  }
  const Result<Journal> journal = Journal::open(state, kStart);
  ASSERT_EQ(journal->found().jobs.size(), 1u);
  EXPECT_EQ(journal->found().jobs.at({4}).submitted, job);
  EXPECT_EQ(journal->found().jobs.at({4}).generation, generation);
}

TEST(Journal, a_second_supervisor_is_refused_until_the_first_is_gone) {
  const TemporaryFolder folder;
  const std::string state = folder.path().string();
  std::optional<Result<Journal>> first = Journal::open(state, kStart);
  const Result<Journal> second = Journal::open(state, kStart);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().action, ErrorAction::tell_user);
  EXPECT_EQ(second.error().message,
            "another supervisor uses the state directory " + state + "; end it, or give this one its own --state");
  first.reset();
  EXPECT_EQ(Journal::open(state, kStart)->epoch(), 2u) << "the refused one took no epoch";
}

TEST(Journal, a_torn_tail_is_cut_off_and_the_journal_goes_on) {
  const TemporaryFolder folder;
  const std::string state = folder.path().string();
  {
    Result<Journal> journal = Journal::open(state, kStart);
    ASSERT_TRUE(journal->append(note("kept"), Durability::durable).ok());
    ASSERT_TRUE(journal->append(note(std::string(10'000, 't')), Durability::buffered).ok());
  }
  fs::resize_file(state + "/journal", fs::file_size(state + "/journal") - 3);
  {
    Result<Journal> journal = Journal::open(state, kStart);
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    EXPECT_GT(journal->dropped_bytes(), 0u);
    ASSERT_TRUE(journal->append(note("later"), Durability::durable).ok());
  }
  const std::vector<JournalEntry> entries = entries_in(state);
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[1], note("kept"));
  EXPECT_EQ(entries[3], note("later"));
  EXPECT_EQ(Journal::open(state, kStart)->dropped_bytes(), 0u);
}

TEST(Journal, a_damaged_one_is_refused_and_left_as_it_is) {
  const TemporaryFolder folder;
  const std::string state = folder.path().string();
  {
    Result<Journal> journal = Journal::open(state, kStart);
    ASSERT_TRUE(journal->append(note("later"), Durability::durable).ok());
  }
  std::string bytes = *read_text_file(state + "/journal", kMiB);
  bytes[40] = static_cast<char>(bytes[40] ^ 1);
  folder.write("journal", bytes);
  const Result<Journal> journal = Journal::open(state, kStart);
  ASSERT_FALSE(journal.ok());
  EXPECT_TRUE(journal.error().message.starts_with(state + "/journal: damaged at byte 32")) << journal.error().message;
  EXPECT_EQ(*read_text_file(state + "/journal", kMiB), bytes);
}

// What a crash right after a durable append may leave: all of it, and any part of what came later.
TEST(Journal, after_a_crash_everything_promised_is_there) {
  const TemporaryFolder folder;
  const std::string state = folder.file("state");
  Result<Journal> journal = Journal::open(state, kStart);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(journal->append(note("buffered " + std::to_string(i)), Durability::buffered).ok());
    ASSERT_TRUE(journal->append(note("durable " + std::to_string(i)), Durability::durable).ok());
    const std::vector<JournalEntry> promised = entries_in(state);
    EXPECT_EQ(promised.back(), note("durable " + std::to_string(i)));
    const std::string crashed = folder.write("crashed/journal", *read_text_file(state + "/journal", kMiB) + "torn");
    const std::string directory = fs::path(crashed).parent_path().string();
    {
      const Result<Journal> again = Journal::open(directory, kStart);
      ASSERT_TRUE(again.ok()) << again.error().message;
      EXPECT_EQ(again->dropped_bytes(), 4u);
      EXPECT_EQ(again->epoch(), 2u);
    }
    const std::vector<JournalEntry> found = entries_in(directory);
    ASSERT_EQ(found.size(), promised.size() + 1);
    EXPECT_TRUE(std::equal(promised.begin(), promised.end(), found.begin()));
  }
}

TEST(Journal, buffered_entries_survive_the_death_of_the_process) {
  const TemporaryFolder folder;
  const std::string state = folder.path().string();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Result<Journal> journal = Journal::open(state, kStart);
    const bool appended = journal && journal->append(note("last words"), Durability::buffered);
    if (appended) ::raise(SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the child could not append";
  EXPECT_EQ(Journal::open(state, kStart)->epoch(), 2u) << "its lock died with it";
  EXPECT_EQ(entries_in(state)[1], note("last words"));
}

// While it lives no file of this process grows beyond `bytes`: writes end as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uint64_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    signal_ = ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, signal_);
  }

 private:
  rlimit before_{};
  void (*signal_)(int) = nullptr;
};

TEST(Journal, a_disk_that_takes_no_more_ends_it_for_good_and_loses_nothing_promised) {
  for (std::uint64_t room = 0; room < 300; room += 7) {
    const TemporaryFolder folder;
    const std::string state = folder.path().string();
    Result<Journal> journal = Journal::open(state, kStart);
    ASSERT_TRUE(journal->append(note("promised"), Durability::durable).ok());
    std::size_t appended = 0;
    {
      const FileSizeLimit limit(fs::file_size(state + "/journal") + room);
      while (journal->append(note("more"), Durability::durable).ok()) ++appended;
    }
    const Result<void> after = journal->append(note("there is room again"), Durability::buffered);
    ASSERT_FALSE(after.ok()) << "a failed journal stays failed";
    EXPECT_EQ(after.error().action, ErrorAction::restart_process);
    EXPECT_TRUE(after.error().message.starts_with("cannot write " + state + "/journal: File too large; nothing is "))
        << after.error().message;
    journal = Error{};  // gives the lock back
    journal = Journal::open(state, kStart);
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    const std::vector<JournalEntry> entries = entries_in(state);
    ASSERT_EQ(entries.size(), 2 + appended + 1);
    EXPECT_EQ(entries[1], note("promised"));
    for (std::size_t i = 0; i < appended; ++i) EXPECT_EQ(entries[2 + i], note("more"));
  }
}

TEST(Journal, an_entry_that_is_too_large_is_refused_and_the_journal_goes_on) {
  const TemporaryFolder folder;
  Result<Journal> journal = Journal::open(folder.path().string(), kStart);
  const Result<void> large = journal->append(note(std::string(kJournalEntryLimit, 'x')), Durability::durable);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().action, ErrorAction::tell_user);
  EXPECT_TRUE(journal->append(note("small"), Durability::durable).ok());
}

TEST(Journal, reading_beside_a_writer_sees_a_growing_prefix) {
  const TemporaryFolder folder;
  const std::string state = folder.path().string();
  Result<Journal> journal = Journal::open(state, kStart);
  constexpr std::size_t kEntries = 2000;
  std::thread writer([&] {
    for (std::size_t i = 0; i < kEntries; ++i) {
      EXPECT_TRUE(journal->append({static_cast<std::int64_t>(i), journaled::Event{}}, Durability::buffered).ok());
    }
  });
  std::size_t seen = 0;
  while (seen < kEntries + 1) {
    const std::vector<JournalEntry> entries = entries_in(state);
    ASSERT_GE(entries.size(), seen);
    for (std::size_t i = 1; i < entries.size(); ++i) ASSERT_EQ(entries[i].wall_ns, static_cast<std::int64_t>(i - 1));
    seen = entries.size();
    if (testing::Test::HasFailure()) break;
  }
  writer.join();
}

TEST(Journal, reading_where_there_is_none_names_the_file) {
  const TemporaryFolder folder;
  const Result<JournalContents> contents = read_journal(folder.path().string());
  ASSERT_FALSE(contents.ok());
  EXPECT_NE(contents.error().message.find(folder.file("journal")), std::string::npos);
}

TEST(Journal, a_long_one_is_rewritten_at_open_with_what_a_restart_needs) {
  const TemporaryFolder folder;
  const std::string state = folder.path().string();
  RestartState expected;
  {
    Result<Journal> journal = Journal::open(state, kStart);
    for (std::uint64_t n = 0; n < 30'000; ++n) {
      ASSERT_TRUE(journal->append(journal_cases::random_entry(3, n, 1000), Durability::buffered).ok());
    }
    expected = restart_state(entries_in(state));
  }
  const std::uintmax_t before = fs::file_size(state + "/journal");
  JournalStart start = kStart;
  start.compaction_bytes = 64 * kKiB;
  start.new_cluster_id = 1;
  const Result<Journal> journal = Journal::open(state, start);
  ASSERT_TRUE(journal.ok()) << journal.error().message;
  EXPECT_LT(fs::file_size(state + "/journal"), before / 10);
  EXPECT_EQ(journal->found(), expected);
  EXPECT_EQ(journal->epoch(), expected.epoch + 1);
  EXPECT_EQ(journal->cluster_id(), kStart.new_cluster_id);
  RestartState kept = restart_state(entries_in(state));
  kept.epoch = expected.epoch;
  kept.tenures = expected.tenures;
  EXPECT_EQ(kept, expected);
}

TEST(Journal, one_that_grows_in_a_long_life_stays_bounded) {
  const TemporaryFolder folder;
  const std::string state = folder.path().string();
  JournalStart start = kStart;
  start.compaction_bytes = 64 * kKiB;
  Result<Journal> journal = Journal::open(state, start);
  const journaled::Submitted job{.job = {1}, .job_file = "x: y\n"};
  ASSERT_TRUE(journal->append({0, job}, Durability::durable).ok());
  for (std::uint64_t n = 1; n <= 20'000; ++n) {
    ASSERT_TRUE(journal->append({0, journaled::RecordSeen{{1}, {n}, {}}}, Durability::buffered).ok());
    ASSERT_LT(fs::file_size(state + "/journal"), start.compaction_bytes + kKiB);
  }
  const RestartState found = restart_state(entries_in(state));
  EXPECT_EQ(found.jobs.at({1}).submitted, job);
  EXPECT_EQ(found.jobs.at({1}).record->step, Step{20'000});
  EXPECT_FALSE(Journal::open(state, start).ok()) << "a rewritten journal is still locked";
}

}  // namespace
}  // namespace kintsugi
