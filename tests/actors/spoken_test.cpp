#include "actors/spoken.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace kintsugi::actors {
namespace {

template <class Fill>
ControlMessage message(Fill fill) {
  return *ControlMessage::parse(make_frame(fill));
}

ControlMessage step_done(std::uint64_t step) {
  return message([&](schemas::Message::Builder m) {
    DecisionRecord record;
    record.step = {step};
    write_record(record, m.initStepDone().initRecord());
    m.getStepDone().setSeconds(0.5);
  });
}

std::vector<ControlMessage> said(const std::function<void(const Spoken::Send&)>& say) {
  std::vector<ControlMessage> all;
  say([&](transport::Frame frame) { all.push_back(*ControlMessage::parse(std::move(frame))); });
  return all;
}

TEST(Spoken, every_step_is_told_again_in_order) {
  Spoken spoken;
  for (std::uint64_t s = 1; s <= 4'500; ++s) spoken.keep({0}, step_done(s));
  std::uint64_t next = 1;
  for (const ControlMessage& m : said([&](const auto& send) { spoken.send_steps({3}, send); })) {
    EXPECT_EQ(m.get().getStepHistory().getJob(), 3U);
    for (const auto step : m.get().getStepHistory().getSteps()) {
      EXPECT_EQ(step.getRecord().getStep(), next++);
      EXPECT_EQ(step.getSeconds(), 0.5);
    }
  }
  EXPECT_EQ(next, 4'501U);
}

TEST(Spoken, of_steps_only_the_newest_are_kept) {
  Spoken spoken;
  for (std::uint64_t s = 1; s <= Spoken::kKeptSteps + 7; ++s) spoken.keep({0}, step_done(s));
  const auto all = said([&](const auto& send) { spoken.send_steps({1}, send); });
  EXPECT_EQ(all.front().get().getStepHistory().getSteps()[0].getRecord().getStep(), 8U);
}

ControlMessage step_known(std::uint64_t step) {
  return message([&](schemas::Message::Builder m) {
    DecisionRecord record;
    record.step = {step};
    write_record(record, m.initStepKnown().initRecord());
    m.getStepKnown().setSeconds(0.25);
  });
}

std::vector<std::uint64_t> steps_in(const std::vector<ControlMessage>& frames) {
  std::vector<std::uint64_t> steps;
  for (const ControlMessage& m : frames) {
    for (const auto step : m.get().getStepHistory().getSteps()) steps.push_back(step.getRecord().getStep());
  }
  return steps;
}

TEST(Spoken, steps_that_the_root_said_elsewhere_are_told_when_they_are_asked_for) {
  Spoken spoken;
  spoken.keep({0}, step_known(1));
  spoken.keep({0}, step_known(2));
  spoken.keep({1}, step_done(3));
  spoken.keep({0}, step_known(3));  // of the same node's first rank
  EXPECT_EQ(steps_in(said([&](const auto& send) { spoken.send_steps({1}, send); })), std::vector<std::uint64_t>{3});
  const auto between = [&](std::uint64_t after, std::uint64_t up_to) {
    return said([&](const auto& send) { spoken.send_steps_between({1}, {after}, {up_to}, send); });
  };
  EXPECT_EQ(steps_in(between(0, 9)), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(steps_in(between(1, 2)), std::vector<std::uint64_t>{2});
  ASSERT_EQ(between(5, 9).size(), 1U) << "who asks gets an answer";
}

TEST(Spoken, what_a_gone_rank_had_not_said_is_told_in_its_place) {
  Spoken spoken;
  spoken.keep({0}, step_known(1));
  DecisionRecord first, second;
  first.step = {1};
  second.step = {2};
  EXPECT_EQ(spoken.keep_unheard({first, second}), std::set<Step>{{2}});
  EXPECT_EQ(steps_in(said([&](const auto& send) { spoken.send_steps({1}, send); })), std::vector<std::uint64_t>{2});
}

TEST(Spoken, the_end_of_a_ranks_work_is_told_again_until_the_next_fence) {
  Spoken spoken;
  spoken.keep({2}, message([](schemas::Message::Builder m) { m.initFinished().setRank(2); }));
  spoken.keep({3}, message([](schemas::Message::Builder m) { m.initFailed().setRank(3); }));
  EXPECT_EQ(said([&](const auto& send) { spoken.send_ends(send); }).size(), 2U);
  spoken.forget({3});
  EXPECT_EQ(said([&](const auto& send) { spoken.send_ends(send); }).size(), 1U);
  spoken.fenced();
  EXPECT_TRUE(said([&](const auto& send) { spoken.send_ends(send); }).empty());
}

TEST(Spoken, a_rank_without_a_hello_has_no_variant) {
  Spoken spoken;
  EXPECT_EQ(spoken.kernel_variant({1}), "");
  spoken.keep({1}, message([](schemas::Message::Builder m) {
                m.initRankUp().setPid(42);
                m.getRankUp().setKernelVariant("cpu");
              }));
  EXPECT_EQ(spoken.kernel_variant({1}), "cpu");
  EXPECT_EQ(spoken.pid({1}), 42U);
}

}  // namespace
}  // namespace kintsugi::actors
