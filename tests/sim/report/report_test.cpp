#include "sim/report/report.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/sim/fleet/kept.hpp"

namespace kintsugi::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Report, says_that_it_is_simulated_from_what_and_what_came_out) {
  const Scenario s = testing::everything();
  const FleetReport report = make_report(s, 1);
  const nlohmann::ordered_json json = to_json(report);
  EXPECT_EQ(json["simulated"], true);
  EXPECT_EQ(json["event_hash"].get<std::string>().size(), 16u);
  EXPECT_NEAR(json["goodput"].get<double>(), json["goodput_in_job"].get<double>() * 16 / 18, 1e-12);
  EXPECT_NEAR(json["tokens"].get<double>(), json["steps"].get<double>() * 128 * 8192, 1);
  EXPECT_EQ(json["policies"].size(), 3u);
  EXPECT_EQ(json["machine"]["folds"]["ranks_of_a_member"], 8);
  EXPECT_GT(json["machine"]["steps"], 100);
  EXPECT_EQ(json["incidents"].size(), report.ours.incidents.size());
  EXPECT_EQ(json["parameters"]["policy"]["rebuild_s"], 5);
  EXPECT_TRUE(json["table"].is_null());
}

TEST(Report, the_page_stands_alone) {
  Scenario s = testing::everything();
  s.name = "<b>&";
  const std::string page = to_html(make_report(s, 1));
  EXPECT_THAT(page, HasSubstr("Simulated."));
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;&amp;"));
  for (const char* outside : {"http:", "https:", "src=", "href=", "<script"})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  std::size_t pictures = 0;
  for (std::size_t at = page.find("<svg"); at != std::string::npos; at = page.find("<svg", at + 1)) ++pictures;
  EXPECT_EQ(pictures, 4u);
}

TEST(Report, the_table_is_a_run_a_cell) {
  FleetReport report = make_report(testing::small("faults: [{ class: node, every: 1h }]\n", "12h"), 1);
  const Scenario s = testing::small("faults: [{ class: node, every: 1h }]\n", "12h");
  report.scenario = &s;
  report.sweep = run_sweep(s, 1, s.duration);
  ASSERT_EQ(report.sweep.size(), 36u);
  // Slower communicators never help, and the last of a row is clearly worse than the first.
  for (std::size_t row = 0; row < 36; row += 4) {
    EXPECT_GT(report.sweep[row].goodput_in_job, report.sweep[row + 3].goodput_in_job + 0.02);
  }
  EXPECT_EQ(to_json(report)["table"].size(), 36u);
}

TEST(Report, percentiles_are_of_the_nearest_rank) {
  EXPECT_EQ(percentile({3, 1, 2, 4}, 0.5), 2);
  EXPECT_EQ(percentile({3, 1, 2, 4}, 1), 4);
  EXPECT_EQ(percentile({}, 0.5), 0);
}

}  // namespace
}  // namespace kintsugi::sim
