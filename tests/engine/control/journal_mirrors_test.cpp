#include "engine/control/journal_mirrors.hpp"

#include <gtest/gtest.h>

#include <optional>

#include "base/philox.hpp"

namespace kintsugi {
namespace {

using namespace mirror_event;

// A shell around the machine: what each node has, and what was declared safe.
struct Shell {
  JournalMirrors machine;
  std::uint64_t written = 1, safe = 0;           // the supervisor's own start is entry 1
  std::map<NodeId, std::uint64_t> has, answers;  // by node: what lies there, what it has yet to say
  std::set<NodeId> copies_wanted;

  void feed(const MirrorEvent& event) {
    for (const MirrorEffect& effect : machine.step(event)) {
      if (const auto* copy = std::get_if<mirror_effect::CopyJournal>(&effect)) copies_wanted.insert(copy->node);
      if (const auto* copy = std::get_if<mirror_effect::SendCopy>(&effect))
        has[copy->node] = answers[copy->node] = written;
      if (const auto* send = std::get_if<mirror_effect::Send>(&effect)) {
        ASSERT_EQ(send->first, has.at(send->node) + 1) << "entries come in order, each once";
        has[send->node] = answers[send->node] = send->last;
      }
      if (const auto* now = std::get_if<mirror_effect::Safe>(&effect)) {
        ASSERT_GT(now->up_to, safe);
        safe = now->up_to;
      }
    }
  }
  void come(std::uint32_t node, const std::string& rack = "") { feed(NodeCame{{node}, rack}); }
  void go(std::uint32_t node) {
    has.erase({node});
    answers.erase({node});
    copies_wanted.erase({node});
    feed(NodeWent{{node}});
  }
  void make_copies() {
    for (const NodeId node : std::set<NodeId>(copies_wanted)) {
      copies_wanted.erase(node);
      feed(CopyMade{node, written});
    }
  }
  void answer(std::uint32_t node) {
    if (const auto said = answers.extract({node})) feed(Kept{{node}, said.mapped()});
  }
  void write() { feed(Written{++written}); }
};

TEST(JournalMirrors, without_nodes_a_promise_is_kept_by_the_disk_alone) {
  Shell shell;
  shell.write();
  EXPECT_EQ(shell.safe, 2u);
}

TEST(JournalMirrors, a_promise_waits_for_the_only_node) {
  Shell shell;
  shell.come(1);
  shell.write();
  EXPECT_EQ(shell.safe, 0u);
  shell.make_copies();
  EXPECT_EQ(shell.safe, 0u) << "sent is not kept";
  EXPECT_TRUE(shell.machine.keepers().empty());
  shell.answer(1);
  EXPECT_EQ(shell.safe, 2u);
  EXPECT_EQ(shell.machine.keepers(), std::set<NodeId>{{1}});
}

TEST(JournalMirrors, a_promise_waits_for_two_nodes_and_not_for_a_third) {
  Shell shell;
  for (std::uint32_t node = 1; node <= 3; ++node) shell.come(node);
  shell.make_copies();
  for (std::uint32_t node = 1; node <= 3; ++node) shell.answer(node);
  shell.write();
  shell.answer(3);
  EXPECT_EQ(shell.safe, 1u);
  shell.answer(1);
  EXPECT_EQ(shell.safe, 2u);
}

TEST(JournalMirrors, the_loss_of_one_of_two_frees_what_waited_for_it) {
  Shell shell;
  shell.come(1);
  shell.come(2);
  shell.make_copies();
  shell.answer(1);
  EXPECT_EQ(shell.safe, 0u);
  shell.go(2);
  EXPECT_EQ(shell.safe, 1u);
}

TEST(JournalMirrors, no_more_than_three_nodes_are_mirrors_and_another_takes_the_place_of_a_lost_one) {
  Shell shell;
  for (std::uint32_t node = 1; node <= 5; ++node) shell.come(node);
  EXPECT_EQ(shell.machine.nodes(), (std::set<NodeId>{{1}, {2}, {3}}));
  shell.go(2);
  EXPECT_EQ(shell.machine.nodes(), (std::set<NodeId>{{1}, {3}, {4}}));
}

TEST(JournalMirrors, a_rack_that_has_no_mirror_is_chosen_first) {
  Shell shell;
  shell.come(1, "a");
  shell.come(2, "a");
  shell.come(3, "a");
  shell.come(4, "b");
  shell.go(1);
  EXPECT_EQ(shell.machine.nodes(), (std::set<NodeId>{{2}, {3}, {4}}));
  shell.go(4);
  shell.come(5, "a");
  shell.come(6, "b");
  shell.go(2);
  EXPECT_EQ(shell.machine.nodes(), (std::set<NodeId>{{3}, {5}, {6}}));
}

TEST(JournalMirrors, an_answer_to_what_was_sent_before_says_nothing_of_what_was_sent_since) {
  Shell shell;
  shell.come(1);
  shell.make_copies();
  shell.write();
  shell.feed(Kept{{1}, 7});
  EXPECT_EQ(shell.safe, 0u);
  shell.answer(1);
  EXPECT_EQ(shell.safe, 1u);
  shell.answer(1);
  EXPECT_EQ(shell.safe, 2u);
}

TEST(JournalMirrors, one_that_does_not_keep_up_is_given_up_so_that_what_waits_stays_bounded) {
  Shell shell;
  shell.come(1);
  shell.come(2);
  shell.make_copies();
  shell.answer(1);
  for (std::uint64_t n = 0; n < 2 * kMirrorBehind; ++n) {
    shell.write();
    shell.answer(1);
    ASSERT_LE(shell.written + 1 - shell.machine.needed_from(), kMirrorBehind);
  }
  while (shell.answers.contains({1})) shell.answer(1);
  EXPECT_EQ(shell.machine.nodes(), std::set<NodeId>{{1}});
  EXPECT_EQ(shell.safe, shell.written);
}

// Whatever comes and goes: what is safe lies on two nodes that are there, or on all if there are fewer.
TEST(JournalMirrors, what_is_safe_lies_on_two_nodes_in_every_order_of_events) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Shell shell;
    std::set<std::uint32_t> here;
    std::uint32_t next = 1;
    for (std::uint64_t n = 0; n < 200; ++n) {
      const std::uint64_t draw = philox_u64(philox_key(seed), n, 0);
      const std::uint32_t some =
          here.empty() ? 0 : *std::next(here.begin(), static_cast<long>((draw >> 8) % here.size()));
      const std::uint64_t before = shell.safe;
      switch (draw % 8) {
        case 0:
          here.insert(next);
          shell.come(next++, draw % 16 < 8 ? "" : std::to_string(draw % 3));
          break;
        case 1:
          if (draw % 3 != 0 || here.empty()) break;
          here.erase(some);
          shell.go(some);
          break;
        case 2: shell.make_copies(); break;
        case 3:
        case 4: shell.write(); break;
        default: shell.answer(some); break;
      }
      if (HasFatalFailure()) FAIL() << "seed " << seed;
      if (shell.safe == before) continue;
      std::size_t have = 0;
      for (const auto& [node, up_to] : shell.has) have += up_to >= shell.safe ? 1 : 0;
      ASSERT_GE(have, std::min(kPromisedMirrors, here.size())) << "seed " << seed;
    }
    // Once all have answered, nothing waits.
    for (int round = 0; round < 20; ++round) {
      shell.make_copies();
      for (const std::uint32_t node : here) shell.answer(node);
    }
    shell.write();
    for (int round = 0; round < 20; ++round) {
      for (const std::uint32_t node : here) shell.answer(node);
    }
    ASSERT_EQ(shell.safe, shell.written) << "seed " << seed;
  }
}

}  // namespace
}  // namespace kintsugi
