#include "kernels/cpu/cpu_stream.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace kintsugi::kernels::cpu {
namespace {

const Instant kSoon = SteadyClock().now() + seconds(60);

Result<void> failure() {
  return Error{ErrorAction::end_generation, "the peer is gone"};
}

TEST(CpuStream, work_runs_in_order_and_off_the_caller) {
  CpuStream stream({2, {}});
  std::vector<int> order;
  const auto caller = std::this_thread::get_id();
  for (int i = 0; i < 2000; ++i) {  // more than the queue holds
    stream.enqueue("append", [&, i]() -> Result<void> {
      EXPECT_NE(std::this_thread::get_id(), caller);
      EXPECT_TRUE(CpuStream::on_a_stream());
      order.push_back(i);
      return {};
    });
  }
  ASSERT_TRUE(stream.synchronize(kSoon));
  EXPECT_FALSE(CpuStream::on_a_stream());
  ASSERT_EQ(order.size(), 2000u);
  for (int i = 0; i < 2000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(CpuStream, a_failure_drops_all_further_work_until_recover) {
  CpuStream stream({1, {}});
  std::atomic<int> ran{0};
  const auto count = [&]() -> Result<void> {
    ++ran;
    return {};
  };
  stream.enqueue("count", count);
  const Event before = stream.record();
  stream.enqueue("fail", failure);
  stream.enqueue("dropped", count);
  stream.launch("dropped", [&](ThreadPool&) { ++ran; });
  stream.wait(Event());  // dropped too, or the stream would hang
  const Event poisoned = stream.record();
  stream.recover();
  stream.enqueue("count", count);
  EXPECT_TRUE(stream.synchronize(kSoon));
  EXPECT_TRUE(before.wait(kSoon));
  const Result<void> outcome = poisoned.wait(kSoon);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().action, ErrorAction::end_generation);
  EXPECT_EQ(outcome.error().message, "the peer is gone");
  EXPECT_EQ(ran, 2);
}

TEST(CpuStream, the_first_error_is_the_one_reported) {
  CpuStream stream({1, {}});
  stream.enqueue("fail", failure);
  stream.enqueue("fail again", []() -> Result<void> { return Error{ErrorAction::retry, "later"}; });
  EXPECT_EQ(stream.synchronize(kSoon).error().action, ErrorAction::end_generation);
}

TEST(CpuStream, a_wait_holds_back_later_work_until_the_event) {
  CpuStream first({1, {}}), second({1, {}});
  Event gate;
  int value = 0;
  first.wait(gate);
  first.launch("write", [&](ThreadPool&) { value = 1; });
  second.wait(first.record());
  int seen = -1;
  second.launch("read", [&](ThreadPool&) { seen = value; });
  const Event done = second.record();
  EXPECT_FALSE(done.is_done());
  gate.signal();
  ASSERT_TRUE(done.wait(kSoon));
  EXPECT_EQ(seen, 1);
}

TEST(CpuStream, a_failed_event_poisons_the_stream_that_waits_for_it) {
  CpuStream stream({1, {}});
  Event event;
  stream.wait(event);
  bool ran = false;
  stream.launch("dropped", [&](ThreadPool&) { ran = true; });
  event.fail({ErrorAction::end_generation, "cancelled"});
  EXPECT_EQ(stream.synchronize(kSoon).error().message, "cancelled");
  EXPECT_FALSE(ran);
}

TEST(CpuStream, work_enqueued_by_running_work_runs_at_once_in_place) {
  CpuStream stream({2, {}});
  std::vector<int> order;
  stream.enqueue("outer", [&]() -> Result<void> {
    order.push_back(1);
    stream.launch("inner", [&](ThreadPool& pool) {
      EXPECT_EQ(pool.threads(), 2);
      order.push_back(2);
    });
    EXPECT_TRUE(stream.record().is_done());
    EXPECT_TRUE(stream.synchronize(kSoon));
    order.push_back(3);
    return {};
  });
  stream.launch("after", [&](ThreadPool&) { order.push_back(4); });
  ASSERT_TRUE(stream.synchronize(kSoon));
  EXPECT_EQ(order, (std::vector{1, 2, 3, 4}));
}

TEST(CpuStream, its_end_comes_after_its_work) {
  std::atomic<int> ran{0};
  {
    CpuStream stream({1, {}});
    for (int i = 0; i < 100; ++i) stream.launch("count", [&](ThreadPool&) { ++ran; });
  }
  EXPECT_EQ(ran, 100);
}

TEST(CpuStream, many_threads_may_enqueue) {
  CpuStream stream({1, {}});
  int sum = 0;  // touched by the stream's thread alone
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) stream.launch("add", [&](ThreadPool&) { ++sum; });
    });
  }
  for (auto& caller : callers) caller.join();
  ASSERT_TRUE(stream.synchronize(kSoon));
  EXPECT_EQ(sum, 2000);
}

}  // namespace
}  // namespace kintsugi::kernels::cpu
