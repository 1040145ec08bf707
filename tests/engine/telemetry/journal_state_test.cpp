#include "engine/telemetry/journal_state.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/telemetry/journal_cases.hpp"

namespace kintsugi {
namespace {

using namespace journaled;
using journal_cases::random_entry;

std::vector<JournalEntry> random_entries(std::uint64_t seed, std::uint64_t count, std::uint32_t incidents = 5) {
  std::vector<JournalEntry> out;
  for (std::uint64_t n = 0; n < count; ++n) out.push_back(random_entry(seed, n, incidents));
  return out;
}

std::vector<Event> events_of(const std::vector<JournalEntry>& entries) {
  std::vector<Event> out;
  for (const JournalEntry& entry : entries) {
    if (const auto* event = std::get_if<Event>(&entry.what)) out.push_back(*event);
  }
  return out;
}

TEST(JournalState, a_restart_knows_the_jobs_that_run_their_newest_generation_and_the_nodes_that_are_there) {
  const std::vector<JournalEntry> entries{
      {0, Started{.epoch = 1}},
      {0, NodeJoined{.node = {1}, .host = "a"}},
      {0, NodeJoined{.node = {2}, .host = "b"}},
      {0, Submitted{.job = {1}, .source = "done.yaml"}},
      {0, Ended{{1}, 0, ""}},
      {0, Submitted{.job = {2}, .source = "runs.yaml"}},
      {0, GenerationMade{.job = {2}, .generation = {1, 1}, .next_rank = {4}}},
      {0, NodeLeft{{2}, "gone"}},
      {0, GenerationMade{.job = {2}, .generation = {1, 2}, .next_rank = {6}}},
      {0, RecordSeen{.job = {2}, .step = {8}}},
      {0, Started{.epoch = 2}},
  };
  const RestartState state = restart_state(entries);
  EXPECT_EQ(state.epoch, 2u);
  ASSERT_EQ(state.nodes.size(), 1u);
  EXPECT_EQ(state.nodes.at({1}).host, "a");
  EXPECT_EQ(state.next_node, NodeId{3}) << "numbers of nodes that are gone are not given again";
  ASSERT_EQ(state.jobs.size(), 1u);
  EXPECT_EQ(state.next_job, JobId{3});
  const RestartJob& job = state.jobs.at({2});
  EXPECT_EQ(job.submitted.source, "runs.yaml");
  EXPECT_EQ(job.generation->generation, (Generation{1, 2}));
  EXPECT_EQ(job.generation->next_rank, RankId{6});
  EXPECT_EQ(job.record->step, Step{8});
  EXPECT_EQ(state.ended, (std::vector<Ended>{{{1}, 0, ""}}));
}

TEST(JournalState, a_restart_knows_how_the_newest_jobs_ended) {
  std::vector<JournalEntry> entries;
  for (std::uint32_t n = 1; n <= kKeptEndedJobs + 2; ++n) entries.push_back({0, Ended{{n}, 1, std::to_string(n)}});
  const RestartState state = restart_state(entries);
  EXPECT_EQ(state.ended.size(), kKeptEndedJobs);
  EXPECT_EQ(state.ended.front().job, JobId{3});
  EXPECT_EQ(state.ended.back().message, std::to_string(kKeptEndedJobs + 2));
}

TEST(JournalState, compaction_keeps_what_a_restart_needs_whatever_happened) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const std::vector<JournalEntry> entries = random_entries(seed, seed);
    const std::vector<JournalEntry> kept = compacted(entries);
    ASSERT_EQ(restart_state(kept), restart_state(entries)) << "seed " << seed;
    ASSERT_EQ(compacted(kept), kept) << "seed " << seed;
    // What comes later means the same after either.
    std::vector<JournalEntry> longer = entries, longer_kept = kept;
    for (std::uint64_t n = 0; n < 20; ++n) {
      longer.push_back(random_entry(seed + 1000, n));
      longer_kept.push_back(longer.back());
    }
    ASSERT_EQ(restart_state(longer_kept), restart_state(longer)) << "seed " << seed;
  }
}

TEST(JournalState, compaction_keeps_the_newest_incidents_whole_and_is_bounded) {
  const std::vector<JournalEntry> entries = random_entries(1, 100'000, 50'000);
  const std::vector<JournalEntry> kept = compacted(entries);
  EXPECT_LT(kept.size(), kKeptEvents + 1000 + restart_state(kept).jobs.size() * kKeptIncidentsOver);
  const std::vector<Event> all = events_of(entries), newest = events_of(kept);
  ASSERT_GE(newest.size(), kKeptIncidents);
  EXPECT_TRUE(std::equal(newest.rbegin(), newest.rbegin() + kKeptIncidents, all.rbegin()))
      << "nothing is missing among the newest";
}

TEST(JournalState, compaction_of_a_storm_of_events_keeps_the_newest_of_them) {
  std::vector<JournalEntry> entries;
  for (std::uint32_t n = 0; n < 3 * kKeptEvents; ++n) {
    entries.push_back({0, Event{.job = {1}, .incident = n % 2, .step = {n}}});
  }
  const std::vector<JournalEntry> kept = compacted(entries);
  ASSERT_EQ(kept.size(), kKeptEvents);
  EXPECT_TRUE(std::equal(kept.rbegin(), kept.rend(), entries.rbegin()));
}

TEST(JournalState, compaction_forgets_all_but_the_newest_ended_jobs) {
  std::vector<JournalEntry> entries;
  for (std::uint32_t n = 1; n <= 3 * kKeptEndedJobs; ++n) {
    entries.push_back({0, Submitted{.job = {n}}});
    entries.push_back({0, GenerationMade{.job = {n}}});
    entries.push_back({0, Ended{{n}, 0, ""}});
  }
  const std::vector<JournalEntry> kept = compacted(entries);
  ASSERT_EQ(kept.size(), 3 * kKeptEndedJobs);
  EXPECT_TRUE(std::equal(kept.rbegin(), kept.rend(), entries.rbegin()));
}

}  // namespace
}  // namespace kintsugi
