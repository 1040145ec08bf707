#include "base/event.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

namespace kintsugi {
namespace {

Instant soon() {
  return SteadyClock().now() + seconds(30);
}
Instant past() {
  return SteadyClock().now() - milliseconds(1);
}

TEST(Event, a_ready_event_waits_for_nobody) {
  const Event event = Event::ready();
  EXPECT_TRUE(event.is_done());
  EXPECT_TRUE(event.wait(past()).ok());
}

TEST(Event, a_deadline_that_passes_first_says_retry_and_leaves_the_event_alone) {
  Event event;
  const Result<void> waited = event.wait(past());
  ASSERT_FALSE(waited.ok());
  EXPECT_EQ(waited.error().action, ErrorAction::retry);
  EXPECT_FALSE(event.is_done());
  event.signal();
  EXPECT_TRUE(event.wait(past()).ok());
}

TEST(Event, the_first_outcome_wins) {
  Event failed;
  failed.fail({ErrorAction::end_generation, "rank 3 is gone"});
  failed.signal();
  failed.fail({ErrorAction::retry, "too late"});
  EXPECT_EQ(failed.wait(soon()).error().message, "rank 3 is gone");

  Event done;
  done.signal();
  done.fail({ErrorAction::retry, "too late"});
  EXPECT_TRUE(done.wait(soon()).ok());
}

TEST(Event, one_signal_wakes_every_waiter) {
  Event event;
  std::atomic<int> woken = 0;
  std::latch waiting(4);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, copy = event] {
      waiting.count_down();
      if (copy.wait(kNoDeadline).ok()) ++woken;
    });
  }
  waiting.wait();
  event.signal();
  threads.clear();
  EXPECT_EQ(woken, 4);
}

TEST(Event, a_callback_runs_once_with_the_outcome_however_it_races_with_the_end) {
  for (int round = 0; round < 200; ++round) {
    Event event;
    std::atomic<int> calls = 0;
    std::latch together(2);
    {
      const std::jthread ends([&] {
        together.arrive_and_wait();
        event.fail({ErrorAction::cancelled, "stop"});
      });
      together.arrive_and_wait();
      event.when_done([&](const Result<void>& outcome) {
        if (!outcome.ok() && outcome.error().action == ErrorAction::cancelled) ++calls;
      });
    }
    ASSERT_EQ(calls, 1);
  }
}

TEST(Event, callbacks_run_in_the_order_they_were_given) {
  Event event;
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    event.when_done([&order, i](const Result<void>&) { order.push_back(i); });
  }
  EXPECT_TRUE(order.empty());
  event.signal();
  event.when_done([&order](const Result<void>&) { order.push_back(3); });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(Event, a_callback_may_end_and_wait_for_other_events_and_its_own) {
  Event first;
  Event second;
  first.when_done([&](const Result<void>&) {
    EXPECT_TRUE(first.wait(past()).ok());
    second.signal();
  });
  first.signal();
  EXPECT_TRUE(second.is_done());
}

}  // namespace
}  // namespace kintsugi
