#include "sim/fleet/timeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/small_scenario.hpp"

namespace kintsugi::sim {
namespace {

using testing::small;

TEST(Timeline, has_the_faults_that_the_rates_say) {
  const Scenario s = small("faults: [{ class: node, every: 18m }, { class: rack, count: 40, over: 20d }]\n", "100d");
  const Timeline t = draw_timeline(s, 3);
  const auto racks =
      std::count_if(t.faults.begin(), t.faults.end(), [](const Fault& f) { return f.kind == FaultClass::rack; });
  const auto nodes = static_cast<std::ptrdiff_t>(t.faults.size()) - racks;
  EXPECT_NEAR(static_cast<double>(nodes), 8000, 4 * 90);  // four standard deviations of a Poisson count
  EXPECT_NEAR(static_cast<double>(racks), 200, 4 * 14.2);
  EXPECT_TRUE(
      std::is_sorted(t.faults.begin(), t.faults.end(), [](const Fault& a, const Fault& b) { return a.at < b.at; }));
}

TEST(Timeline, one_more_source_shifts_no_other) {
  const Timeline one = draw_timeline(small("faults: [{ class: node, every: 1h }]\n"), 3);
  const Timeline two = draw_timeline(small("faults: [{ class: node, every: 1h }, { class: rack, every: 1h }]\n"), 3);
  std::vector<double> first, second;
  for (const Fault& f : one.faults) first.push_back(f.at);
  for (const Fault& f : two.faults) {
    if (f.cause == 0) second.push_back(f.at);
  }
  EXPECT_EQ(first, second);
}

TEST(Timeline, lemons_take_their_share) {
  const Timeline t =
      draw_timeline(small("faults: [{ class: node, every: 10m }]\nlemons: { count: 1, share: 0.5 }\n", "50d"), 3);
  std::vector<int> count(18, 0);
  for (const Fault& f : t.faults) ++count[f.place];
  std::sort(count.rbegin(), count.rend());
  EXPECT_GT(count[0], 10 * count[1]);
}

TEST(Timeline, a_rack_is_all_its_nodes) {
  const Scenario s = small("");
  EXPECT_EQ(nodes_struck(s.cluster, {0, 0, FaultClass::rack, 4}), (std::vector<std::uint32_t>{8, 9}));
  EXPECT_EQ(nodes_struck(s.cluster, {0, 0, FaultClass::node, 4}), (std::vector<std::uint32_t>{4}));
}

}  // namespace
}  // namespace kintsugi::sim
