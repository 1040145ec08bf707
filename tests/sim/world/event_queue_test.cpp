#include "sim/world/event_queue.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace kintsugi::sim {
namespace {

struct Named {
  int name = 0;
};
std::uint64_t fingerprint(const Named& e) {
  return static_cast<std::uint64_t>(e.name);
}

TEST(EventQueue, pops_by_instant_and_equal_instants_in_the_order_of_pushing) {
  VirtualClock clock;
  EventQueue<Named> queue(clock, 8);
  queue.push({20}, {1});
  queue.push({10}, {2});
  queue.push({20}, {3});
  queue.push({10}, {4});
  std::vector<int> order;
  while (!queue.empty()) order.push_back(queue.pop().name);
  EXPECT_EQ(order, (std::vector<int>{2, 4, 1, 3}));
  EXPECT_EQ(clock.now(), Instant{20});
  EXPECT_EQ(queue.popped(), 4u);
  EXPECT_EQ(queue.most(), 4u);
}

TEST(EventQueue, hash_tells_runs_apart_by_what_happened_when_and_in_which_order) {
  const auto run = [](std::vector<std::pair<std::int64_t, int>> events) {
    VirtualClock clock;
    EventQueue<Named> queue(clock, 8);
    for (const auto& [at, name] : events) queue.push({at}, {name});
    while (!queue.empty()) queue.pop();
    return queue.hash();
  };
  const std::uint64_t once = run({{1, 1}, {2, 2}});
  EXPECT_EQ(run({{1, 1}, {2, 2}}), once);
  EXPECT_NE(run({{1, 2}, {2, 1}}), once);
  EXPECT_NE(run({{1, 1}, {3, 2}}), once);
  EXPECT_NE(run({{2, 2}, {1, 1}}), once) << "another order of pushing";
}

TEST(EventQueueDeathTest, refuses_the_past_and_more_than_its_bound) {
  VirtualClock clock;
  EventQueue<Named> queue(clock, 1);
  queue.push({5}, {1});
  EXPECT_DEATH(queue.push({6}, {2}), "more events are waiting");
  queue.pop();
  EXPECT_DEATH(queue.push({4}, {2}), "an event in the past");
}

}  // namespace
}  // namespace kintsugi::sim
