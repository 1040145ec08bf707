#include "sim/scenario/scenario.hpp"

#include <gmock/gmock.h>

#include "sim/scenario/scenario_map.hpp"
#include "tests/sim/small_scenario.hpp"

namespace kintsugi::sim {
namespace {

using ::testing::HasSubstr;
using testing::small;
using testing::small_text;

std::string refusal(const std::string& text) {
  const Result<Scenario> read = parse_scenario(text, "s.yaml");
  if (read) return "accepted";
  EXPECT_EQ(read.error().action, ErrorAction::tell_user);
  return read.error().message;
}

TEST(Scenario, is_read_whole) {
  const Scenario s = small(
      "faults:\n"
      "  - { cause: a GPU, class: device, count: 148, over: 54d }\n"
      "  - { class: rack, at: 3h, target: 4 }\n"
      "  - { class: process, every: 18m, distribution: weibull, shape: 0.7, burst: 3, within: 10s, hang: true }\n"
      "  - { class: switch, at_step: 100 }\n"
      "  - { class: node, during_recovery: 0.25 }\n"
      "repair: { device: { distribution: log_normal, mean: 12h, sigma: 1.0 }, node: 1d, rack: { values: [1h, 3h] } }\n"
      "lemons: { count: 2, share: 0.5 }\n"
      "spot: { every: 2h, stay: { distribution: exponential, mean: 5h }, notice: 2m, at_most: 4 }\n"
      "policy: { rebuild: 10s, replicas: 3, restart: { interval: 30m, write: 5s, restart: 10m, clock: productive } "
      "}\n");
  EXPECT_EQ(s.ranks(), 128u);
  EXPECT_EQ(s.duration, 172'800);
  ASSERT_EQ(s.faults.size(), 5u);
  EXPECT_NEAR(s.faults[0].gap->mean, 54.0 * 86'400 / 148, 1e-6);
  EXPECT_EQ(s.faults[1].at, 10'800);
  EXPECT_EQ(s.faults[1].target, 4u);
  EXPECT_EQ(s.faults[2].gap, (Distribution{Distribution::Kind::weibull, 1080, 0.7}));
  EXPECT_EQ(s.faults[2].burst, 3u);
  EXPECT_TRUE(s.faults[2].hang);
  EXPECT_EQ(s.faults[3].at_step, 100u);
  EXPECT_EQ(s.faults[3].kind, FaultClass::network_switch);
  EXPECT_EQ(s.faults[4].during_recovery, 0.25);
  EXPECT_EQ(s.repair[static_cast<int>(FaultClass::node)], (Distribution{Distribution::Kind::fixed, 86'400}));
  EXPECT_EQ(s.repair[static_cast<int>(FaultClass::rack)].expected(), 7200);
  EXPECT_EQ(s.lemons.count, 2u);
  EXPECT_EQ(s.spot.notice, 120);
  EXPECT_EQ(s.policy.replicas, 3);
  EXPECT_TRUE(s.policy.restart.productive_clock);
}

TEST(Scenario, what_is_wrong_is_refused_with_file_line_and_key) {
  EXPECT_THAT(refusal(small_text("fault: []\n")), HasSubstr("s.yaml:6: fault: unknown key; did you mean 'faults'?"));
  EXPECT_THAT(refusal(small_text("faults:\n  - { class: node, evry: 1h }\n")),
              HasSubstr("s.yaml:7: faults[0].evry: unknown key; did you mean 'every'?"));
  EXPECT_THAT(refusal(small_text("faults:\n  - { class: node, count: -3, over: 1d }\n")),
              HasSubstr("s.yaml:7: faults[0].count: '-3' is out of range"));
  EXPECT_THAT(refusal(small_text("faults:\n  - { class: node, every: -18m }\n")),
              HasSubstr("s.yaml:7: faults[0].every: '-18m' is no time"));
  EXPECT_THAT(refusal(small_text("", "2d", "racks: 17")),
              HasSubstr("s.yaml:5: cluster.racks: 17 of them for 16 nodes"));
  EXPECT_THAT(refusal(small_text("faults:\n  - { class: gpu, every: 1h }\n")), HasSubstr("s.yaml:7: faults[0].class"));
  EXPECT_THAT(refusal(small_text("faults:\n  - { class: node }\n")), HasSubstr("write exactly one of: at, at_step"));
  EXPECT_THAT(refusal(small_text("faults:\n  - { class: node, at: 1h, every: 2h }\n")), HasSubstr("exactly one of"));
  EXPECT_THAT(refusal(small_text("faults:\n  - { class: node, every: 1h, distribution: weibull }\n")),
              HasSubstr("faults[0].shape: is missing"));
  EXPECT_THAT(refusal(small_text("faults:\n  - { class: node, at: 1h, target: 18 }\n")),
              HasSubstr("faults[0].target: '18' is out of range"));
  EXPECT_THAT(refusal(small_text("", "2d", "rank_bandwidth: 0")), HasSubstr("cluster.rank_bandwidth"));
  EXPECT_THAT(refusal(small_text("", "2 days")), HasSubstr("s.yaml:3: duration: '2 days' is no time"));
  EXPECT_THAT(refusal(small_text("trace: missing.csv\n")), HasSubstr("missing.csv"));
  EXPECT_THAT(refusal("scenario: x\n"), HasSubstr("s.yaml:1: duration: is missing"));
}

TEST(Scenario, times_have_units) {
  EXPECT_EQ(seconds_from("54d"), 54.0 * 86'400);
  EXPECT_EQ(seconds_from("250ms"), 0.25);
  EXPECT_EQ(seconds_from("0"), 0);
  for (const char* wrong : {"", "5", "-1s", "1y", "1e30d", "nan s", "s"}) EXPECT_FALSE(seconds_from(wrong)) << wrong;
}

TEST(Scenario, those_that_are_shipped_can_be_read) {
  for (const char* name : {"llama3-405b-54d", "fleet-100k", "fleet-131072", "spot", "maintenance"}) {
    const auto read = load_scenario(std::string(KINTSUGI_SCENARIOS) + "/" + name + ".yaml");
    ASSERT_TRUE(read) << name << ": " << read.error().message;
    EXPECT_EQ(read->name, name);
  }
}

// Table 5 of arXiv 2407.21783.
TEST(Scenario, that_of_llama_3_has_the_published_counts) {
  const auto read = load_scenario(std::string(KINTSUGI_SCENARIOS) + "/llama3-405b-54d.yaml");
  ASSERT_TRUE(read);
  double unexpected = 0, planned = 0;
  for (const FaultSource& f : read->faults) {
    (f.kind == FaultClass::maintenance ? planned : unexpected) += read->duration / f.gap->mean;
  }
  EXPECT_NEAR(unexpected, 419, 1e-6);
  EXPECT_NEAR(planned, 47, 1e-6);
  EXPECT_EQ(read->ranks(), 16'384u);
}

}  // namespace
}  // namespace kintsugi::sim
