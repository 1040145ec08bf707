#include "engine/telemetry/timeline.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kintsugi {
namespace {

using namespace journaled;

JournalEntry at(std::int64_t ms, Event event) {
  if (event.job == JobId{}) event.job = {1};
  return {ms * 1'000'000, std::move(event)};
}

Event in_incident(std::uint32_t incident, EventKind kind, std::string subject, std::string text) {
  return {.generation = {1, 4},
          .incident = incident,
          .kind = kind,
          .by = "supervisor",
          .subject = std::move(subject),
          .text = std::move(text)};
}

// Two members; rank 0 answers the fence 5 ms before rank 1, and training goes on 20 ms later.
std::vector<JournalEntry> one_incident() {
  Event over = in_incident(1, EventKind::incident_over, "rank 2 on node 1 (a)", "rank lost: was killed by signal 9");
  over.bytes_moved = 96;
  over.lanes_recomputed = 2;
  return {
      {0, Started{1, 7, "a", 40, "0.1"}},
      at(10, {.kind = EventKind::note, .text = "preparing"}),
      at(100, in_incident(1, EventKind::evidence, "rank 2 on node 1 (a)", "was killed by signal 9")),
      at(101, in_incident(1, EventKind::fence, "", "rank 2 was killed")),
      at(105, in_incident(1, EventKind::report, "rank 0", "4 copies")),
      at(110, in_incident(1, EventKind::report, "rank 1", "4 copies")),
      at(130, in_incident(1, EventKind::resume, "", "training goes on")),
      at(160, over),
  };
}

TEST(Timeline, an_incident_is_its_events_in_order_and_nothing_else) {
  const auto incidents = incident_timelines(one_incident());
  ASSERT_EQ(incidents.size(), 1U);
  EXPECT_EQ(incidents[0].lines.size(), 6U);
  EXPECT_EQ(incidents[0].lines.front().event.kind, EventKind::evidence);
  EXPECT_TRUE(incidents[0].over);
  EXPECT_EQ(incidents[0].verdict().bytes_moved, 96U);
}

TEST(Timeline, a_rank_is_idle_from_its_answer_to_the_resume) {
  const auto incidents = incident_timelines(one_incident());
  ASSERT_EQ(incidents[0].idle.size(), 2U);
  EXPECT_EQ(incidents[0].idle[0].who, "rank 0");
  EXPECT_EQ(incidents[0].idle[0].ns, 25'000'000);
  EXPECT_EQ(incidents[0].idle[1].ns, 20'000'000);
}

TEST(Timeline, whoever_answered_before_a_fault_in_the_recovery_waited_all_the_time) {
  std::vector<JournalEntry> entries = one_incident();
  entries.insert(entries.begin() + 6, at(115, in_incident(1, EventKind::fence, "", "rank 1 died too")));
  entries.insert(entries.begin() + 7, at(117, in_incident(1, EventKind::report, "rank 0", "4 copies")));
  EXPECT_EQ(incident_timelines(entries)[0].idle[0].ns, 25'000'000);
}

TEST(Timeline, equal_numbers_of_two_jobs_are_two_incidents) {
  std::vector<JournalEntry> entries = one_incident();
  Event other = in_incident(1, EventKind::evidence, "node 3", "its link was reset");
  other.job = {2};
  entries.push_back(at(200, other));
  const auto incidents = incident_timelines(entries);
  ASSERT_EQ(incidents.size(), 2U);
  EXPECT_EQ(incidents[1].job, JobId{2});
  EXPECT_FALSE(incidents[1].over);
  EXPECT_EQ(incidents[1].verdict().subject, "node 3");
}

TEST(Timeline, the_text_names_whom_why_when_and_what_it_cost) {
  const std::string text = to_text(incident_timelines(one_incident())[0]);
  EXPECT_NE(text.find("incident 1 of job 1: rank 2 on node 1 (a): rank lost: was killed by signal 9\n"),
            std::string::npos);
  EXPECT_NE(text.find("1970-01-01 00:00:00.100 UTC"), std::string::npos);
  EXPECT_NE(text.find("   +0.030 s  1.4    resume        supervisor: training goes on\n"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1 was idle for 0.020 s"), std::string::npos);
  EXPECT_NE(text.find("96 bytes of state moved, 2 lanes computed again, 0 steps lost"), std::string::npos);
}

TEST(Timeline, json_says_the_same) {
  const auto json = nlohmann::json::parse(to_json(incident_timelines(one_incident())[0]));
  EXPECT_EQ(json["events"].size(), 6U);
  EXPECT_EQ(json["events"][1]["kind"], "fence");
  EXPECT_EQ(json["lanes_recomputed"], 2);
  EXPECT_EQ(json["idle"][0]["who"], "rank 0");
}

TEST(Timeline, text_that_is_not_utf8_does_not_end_the_printer) {
  std::vector<JournalEntry> entries = one_incident();
  entries.push_back(at(170, in_incident(1, EventKind::note, "", "\xff\xfe")));
  EXPECT_NO_THROW(to_json(incident_timelines(entries)[0]));
}

}  // namespace
}  // namespace kintsugi
