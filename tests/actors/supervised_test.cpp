#include "actors/supervised.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "actors/system.hpp"
#include "base/event.hpp"
#include "engine/control/supervision.hpp"

namespace kintsugi::actors {

struct Word {
  int number = 0;
};
struct Bomb {};
struct LastWord {};

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::Word)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::Bomb)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::LastWord)

namespace kintsugi::actors {
namespace {

struct Heard {
  std::vector<std::pair<std::uint32_t, int>> words;  // by which incarnation
  std::vector<Crash> crashes;
  int ends = 0;
  Event done;  // at the last word; then nobody writes any more
  std::function<void()> at_birth;
};

class Listener final : public Body {
 public:
  Listener(Life life, Heard& heard) : Body(std::move(life)), heard_(heard) {}
  caf::behavior make_behavior() override {
    if (life().before) heard_.crashes.push_back(*life().before);
    if (heard_.at_birth) heard_.at_birth();
    return {
        [this](const Word& m) { heard_.words.emplace_back(life().incarnation, m.number); },
        [](const Bomb&) { throw std::runtime_error("boom"); },
        [this](const LastWord&) { quit(); },
    };
  }
  void on_end() override {
    ++heard_.ends;
    heard_.done.signal();
  }

 private:
  Heard& heard_;
};

// Owns a listener; its own letters are the listener's crash.
struct HeldParent {
  std::shared_ptr<Heard> child_heard;
  caf::actor child;
  std::vector<std::uint32_t> incarnations;
};

class Parent final : public Body {
 public:
  Parent(Life life, HeldParent& held) : Body(std::move(life)), held_(held) {}
  caf::behavior make_behavior() override {
    held_.incarnations.push_back(life().incarnation);
    if (!held_.child) held_.child = spawn_supervised(place("child"), bodies_of<Listener>(held_.child_heard));
    return {
        [this](const Bomb&) { send(held_.child, Bomb{}); },
        [this](const LastWord&) { send(held_.child, LastWord{}); },
    };
  }
  void on_end() override { held_.child = nullptr; }

 private:
  HeldParent& held_;
};

class Supervised : public testing::Test {
 protected:
  caf::actor root(std::shared_ptr<Heard> heard) {
    return spawn_supervised({&system_, &tree_, "root", nullptr, 0,
                             [this](const std::string& why) {
                               spent_why_ = why;
                               spent_.signal();
                             }},
                            bodies_of<Listener>(std::move(heard)));
  }
  void wait(const Event& event) { ASSERT_TRUE(event.wait(SteadyClock().now() + seconds(30)).ok()); }

  Event spent_;
  std::string spent_why_;
  ActorTree tree_{Logger()};
  caf::actor_system_config config_ = make_system_config();
  caf::actor_system system_{config_};
};

TEST_F(Supervised, letters_wait_in_their_order_and_only_the_one_in_hand_is_lost) {
  const auto heard = std::make_shared<Heard>();
  const caf::actor a = root(heard);
  caf::anon_send(a, Word{1});
  caf::anon_send(a, Bomb{});
  for (int i = 2; i <= 5; ++i) caf::anon_send(a, Word{i});
  caf::anon_send(a, LastWord{});
  wait(heard->done);
  using Words = std::vector<std::pair<std::uint32_t, int>>;
  EXPECT_EQ(heard->words, (Words{{1, 1}, {2, 2}, {2, 3}, {2, 4}, {2, 5}}));
  ASSERT_EQ(heard->crashes.size(), 1U);
  EXPECT_EQ(heard->crashes[0].why, "boom");
  EXPECT_TRUE(heard->crashes[0].letter_lost);
  EXPECT_EQ(heard->ends, 1);  // a crash is no end
}

TEST_F(Supervised, an_injected_crash_loses_no_letter_and_the_tree_shows_it) {
  const auto heard = std::make_shared<Heard>();
  Event born, reborn;
  heard->at_birth = [&] { (born.is_done() ? reborn : born).signal(); };
  const caf::actor a = root(heard);
  caf::anon_send(a, Word{1});
  wait(born);
  EXPECT_TRUE(tree_.crash("root"));
  EXPECT_FALSE(tree_.crash("nobody"));
  wait(reborn);
  const std::vector<ActorRow> rows = tree_.rows();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].incarnation, 2U);
  EXPECT_EQ(rows[0].restarts, 1U);
  EXPECT_EQ(rows[0].last_crash, "an injected crash");
  caf::anon_send(a, LastWord{});
  wait(heard->done);
  EXPECT_FALSE(heard->crashes.at(0).letter_lost);
}

TEST_F(Supervised, a_root_that_has_spent_its_budget_tells_its_process) {
  const auto heard = std::make_shared<Heard>();
  const caf::actor a = root(heard);
  for (std::uint32_t i = 0; i <= SupervisionPolicy().budget; ++i) caf::anon_send(a, Bomb{});
  wait(spent_);
  EXPECT_NE(spent_why_.find("root crashed again after 4 restarts"), std::string::npos) << spent_why_;
  caf::anon_send_exit(a, caf::exit_reason::kill);
}

TEST_F(Supervised, a_child_that_has_spent_its_budget_is_its_parents_crash) {
  const auto held = std::make_shared<HeldParent>();
  held->child_heard = std::make_shared<Heard>();
  const caf::actor parent =
      spawn_supervised({&system_, &tree_, "root", nullptr, 0, [](const std::string&) {}}, bodies_of<Parent>(held));
  for (std::uint32_t i = 0; i <= SupervisionPolicy().budget; ++i) caf::anon_send(parent, Bomb{});
  caf::anon_send(parent, LastWord{});
  wait(held->child_heard->done);
  EXPECT_EQ(held->child_heard->crashes.size(), SupervisionPolicy().budget + 1);
  EXPECT_EQ(tree_.rows().at(0).incarnation, 2U);
  EXPECT_NE(tree_.rows().at(0).last_crash.find("child crashed again after 4 restarts"), std::string::npos);
  caf::anon_send_exit(parent, caf::exit_reason::user_shutdown);
}

}  // namespace
}  // namespace kintsugi::actors
