#include "sim/world/links.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kintsugi::sim {

struct protocol::Message {
  int number = 0;
};

namespace {

struct Heard final : LinkUser {
  void on_message(LinkId, const std::shared_ptr<const Message>& m) override { numbers.push_back(m->number); }
  void on_link_down(LinkId, const std::string& why) override { ends.push_back(why); }
  std::vector<int> numbers;
  std::vector<std::string> ends;
};

class LinksTest : public ::testing::Test {
 protected:
  void send(Pid from, int number) {
    links.send(link, from, static_cast<std::uint64_t>(number), std::make_shared<const Message>(Message{number}));
  }
  void pass(Duration span) {
    const Instant end = clock.now() + span;
    while (!processes.queue().empty() && processes.queue().next_at() <= end) processes.step();
    clock.advance_to(end);
  }

  VirtualClock clock;
  Processes processes{clock, 1000};
  Links links{processes, 7};
  Pid a = processes.start(1), b = processes.start(2);
  Heard at_a, at_b;
  LinkId link = links.open(a, at_a, b, at_b, {milliseconds(1), milliseconds(9)});
};

TEST_F(LinksTest, frames_arrive_in_the_order_in_which_they_were_sent) {
  for (int i = 0; i < 50; ++i) send(a, i);
  pass(milliseconds(500));
  ASSERT_EQ(at_b.numbers.size(), 50U);
  EXPECT_TRUE(std::is_sorted(at_b.numbers.begin(), at_b.numbers.end()));
}

TEST_F(LinksTest, a_short_cut_delays_frames_and_loses_none) {
  links.cut(link, a);
  send(a, 1);
  pass(milliseconds(900));
  EXPECT_TRUE(at_b.numbers.empty());
  send(a, 2);
  links.mend(link, a);
  pass(seconds(5));
  EXPECT_EQ(at_b.numbers, (std::vector<int>{1, 2}));
  EXPECT_TRUE(at_b.ends.empty() && at_a.ends.empty());
}

TEST_F(LinksTest, a_long_cut_one_way_ends_the_link_at_both_ends_within_two_seconds) {
  links.cut(link, a);
  pass(milliseconds(1'599));
  EXPECT_TRUE(at_a.ends.empty() && at_b.ends.empty());
  pass(milliseconds(420));
  EXPECT_EQ(at_a.ends.size(), 1U);
  EXPECT_EQ(at_b.ends.size(), 1U);
  EXPECT_FALSE(links.is_up(link, a) || links.is_up(link, b));
}

TEST_F(LinksTest, a_process_that_was_stopped_reads_in_order_what_came_meanwhile) {
  links.process_stops(b);
  processes.stop(b);
  send(a, 1);
  send(a, 2);
  pass(milliseconds(500));
  EXPECT_TRUE(at_b.numbers.empty());
  links.process_goes_on(b);
  processes.go_on(b);
  send(a, 3);
  pass(seconds(3));
  EXPECT_EQ(at_b.numbers, (std::vector<int>{1, 2, 3}));
  EXPECT_TRUE(at_a.ends.empty());
}

TEST_F(LinksTest, what_a_killed_process_sent_arrives_before_its_end_and_a_reset_loses_it) {
  send(b, 1);
  links.process_ends(b, false);
  processes.end(b);
  pass(milliseconds(100));
  EXPECT_EQ(at_a.numbers, std::vector<int>{1});
  EXPECT_EQ(at_a.ends.size(), 1U);

  const Pid c = processes.start(3);
  Heard at_c;
  link = links.open(a, at_a, c, at_c, {milliseconds(1), milliseconds(9)});
  send(c, 2);
  links.process_ends(c, true);
  processes.end(c);
  pass(milliseconds(100));
  EXPECT_EQ(at_a.numbers, std::vector<int>{1});
  EXPECT_EQ(at_a.ends.size(), 2U);
}

TEST_F(LinksTest, a_machine_that_vanishes_is_found_by_its_silence_alone) {
  send(b, 1);
  links.process_vanishes(b);
  processes.end(b);
  pass(milliseconds(1'500));
  EXPECT_TRUE(at_a.ends.empty() && at_a.numbers.empty());
  pass(milliseconds(520));
  ASSERT_EQ(at_a.ends.size(), 1U);
  EXPECT_NE(at_a.ends[0].find("no answer to pings"), std::string::npos);
}

}  // namespace
}  // namespace kintsugi::sim
