#include "actors/report.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace kintsugi::actors {
namespace {

AdmittedJob tiny_job() {
  AdmittedJob job;
  job.config = *parse_job(
      "job: tiny\n"
      "model: { family: gpt2, layers: 2, width: 32, heads: 2, context: 16, vocabulary: 256 }\n"
      "data: { train: x.bin, tokens: uint16, seed: 7 }\n"
      "batch: { sequences: 8, microbatch: 1, lanes: 8 }\n"
      "optimizer: { name: adamw, learning_rate: 1e-3 }\n"
      "parallel: { stages: 2 }\n"
      "precision: float32\n"
      "steps: 3\n",
      "tiny.yaml");
  return job;
}

DecisionRecord record(std::uint64_t step) {
  DecisionRecord r;
  r.step = {step};
  r.loss = 5.5f - static_cast<float>(step);
  r.previous_digest = {0, step - 1};  // of the state before this step
  return r;
}

RankAccount account(std::uint32_t rank) {
  RankAccount a;
  a.rank = {rank};
  a.peak_flops = 1e9;
  a.final_digest = {0, 3};
  return a;
}

Plan plan_of(std::uint32_t ranks) {
  Plan plan;
  for (std::uint32_t r = 0; r < ranks; ++r) plan.ranks.push_back({{r}, {1}});
  return plan;
}

nlohmann::json finished_report() {
  Report report(tiny_job(), Instant{});
  report.planned(plan_of(2), "cpu");
  for (std::uint64_t step = 1; step <= 3; ++step) {
    report.step_final(record(step), 0.5, Instant{} + seconds(static_cast<std::int64_t>(step)));
  }
  report.rank_finished(account(0));
  report.rank_finished(account(1));
  return nlohmann::json::parse(report.json("1.2.3"));
}

TEST(Report, a_step_bears_the_digest_of_the_state_after_it) {
  const nlohmann::json report = finished_report();
  for (std::uint64_t step = 1; step <= 3; ++step) {
    EXPECT_EQ(report["steps"][step - 1]["digest"], to_hex(Digest{0, step}));
  }
  EXPECT_EQ(report["final_digest"], to_hex(Digest{0, 3}));
}

TEST(Report, a_step_bears_when_it_was_final_and_how_many_failure_domains_hold_it) {
  Report report(tiny_job(), Instant{} + seconds(5));
  DecisionRecord held = record(1);
  held.failure_domains = 2;
  report.step_final(held, 0.5, Instant{} + seconds(7));
  const nlohmann::json json = nlohmann::json::parse(report.json("1.2.3"));
  EXPECT_DOUBLE_EQ(json["began_s"], 5);
  EXPECT_DOUBLE_EQ(json["steps"][0]["final_s"], 2);
  EXPECT_EQ(json["steps"][0]["failure_domains"], 2);
}

TEST(Report, rates_are_over_the_time_spent_in_steps) {
  const nlohmann::json report = finished_report();
  EXPECT_EQ(report["tokens"], 3 * 8 * 16);
  EXPECT_DOUBLE_EQ(report["tokens_per_second"], 8 * 16 / 0.5);
  EXPECT_DOUBLE_EQ(report["mfu"].get<double>(), report["step_flops"].get<double>() / 0.5 / 2e9);
}

TEST(Report, what_was_not_measured_is_null_and_every_key_is_there) {
  Report report(tiny_job(), Instant{});
  DecisionRecord diverged = record(1);
  diverged.loss = std::numeric_limits<float>::quiet_NaN();
  report.step_final(diverged, 0.5, Instant{});
  const nlohmann::json json = nlohmann::json::parse(report.json("1.2.3"));
  EXPECT_TRUE(json["steps"][0]["loss"].is_null());
  EXPECT_TRUE(json["steps"][0]["digest"].is_null());
  for (const char* key : {"job", "steps", "final_digest", "tokens", "tokens_per_second", "mfu", "incidents", "goodput",
                          "per_rank", "reduction", "version"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
}

TEST(Report, a_long_run_keeps_the_newest_steps_and_says_how_many_are_left_out) {
  Report report(tiny_job(), Instant{});
  for (std::uint64_t step = 1; step <= kReportedSteps + 2; ++step) {
    report.step_final(record(step), 0.5, Instant{});
  }
  const std::string text = report.json("1.2.3");
  EXPECT_LT(text.size(), 16'000'000U);  // a frame
  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json["steps_left_out"], 2);
  EXPECT_EQ(json["steps"][0]["step"], 3);
  EXPECT_EQ(json["tokens"], (kReportedSteps + 2) * 8 * 16);
}

TEST(Report, a_step_that_is_heard_late_fills_its_place) {
  Report report(tiny_job(), Instant{});
  report.step_final(record(1), 0.5, Instant{});
  EXPECT_EQ(report.gap(), std::nullopt);
  report.step_final(record(4), 0.5, Instant{});
  EXPECT_EQ(report.whole(), Step{1});
  EXPECT_EQ(report.gap(), Step{3});
  report.step_final(record(3), 0, Instant{});
  report.step_final(record(2), 0.5, Instant{});
  report.step_final(record(2), 0.5, Instant{});
  report.step_final(record(3), 0.25, Instant{});  // with the time that it took
  EXPECT_EQ(report.whole(), Step{4});
  EXPECT_EQ(report.gap(), std::nullopt);
  const nlohmann::json json = nlohmann::json::parse(report.json("1.2.3"));
  ASSERT_EQ(json["steps"].size(), 4U);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    EXPECT_EQ(json["steps"][step - 1]["step"], step);
    EXPECT_EQ(json["steps"][step - 1]["digest"], to_hex(Digest{0, step}));
  }
  EXPECT_DOUBLE_EQ(json["steps"][2]["seconds"], 0.25);
  EXPECT_DOUBLE_EQ(json["goodput"]["productive_s"], 1.75);
  EXPECT_EQ(json["tokens"], 4 * 8 * 16);
}

TEST(Report, an_incident_is_told_phase_by_phase_in_seconds_of_the_run) {
  Report report(tiny_job(), Instant{1'000'000'000});
  IncidentReport incident;
  incident.id = 1;
  incident.kind = "rank lost";
  incident.detected = Instant{3'000'000'000};
  incident.fenced = Instant{3'500'000'000};
  report.incident(incident);
  const nlohmann::json json = nlohmann::json::parse(report.json("1.2.3"))["incidents"][0];
  EXPECT_EQ(json["kind"], "rank lost");
  EXPECT_DOUBLE_EQ(json["detected_s"], 2.0);
  EXPECT_DOUBLE_EQ(json["fenced_s"], 2.5);
  EXPECT_TRUE(json["resumed_s"].is_null());
  for (const char* key : {"target", "first_commit_s", "lanes_recomputed", "bytes_moved", "steps_lost"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
}

}  // namespace
}  // namespace kintsugi::actors
