// Pause: a generation that is prepared and not resumed.
#include "tests/engine/control/job_case.hpp"

namespace kintsugi {
namespace {

using namespace job_event;  // NOLINT(google-build-using-namespace)
namespace effect = job_effect;

class JobPause : public testing::JobCase {
 protected:
  void pause() {
    run();
    commit();
    feed(PauseJob{});
    ASSERT_NE(said<effect::Intend>(), nullptr);
    commit(said<effect::Intend>()->generation);
    answer_fence();
    prepare_all();
    ASSERT_EQ(machine.phase(), JobPhase::paused);
    EXPECT_EQ(said<effect::Resume>(), nullptr);
  }
};

TEST_F(JobPause, a_paused_job_holds_all_state_without_a_deadline_and_goes_on_where_it_was) {
  pause();
  feed(DeadlinePassed{deadline});
  EXPECT_EQ(machine.phase(), JobPhase::paused);
  feed(ResumeJob{});
  ASSERT_NE(said<effect::Resume>(), nullptr);
  EXPECT_EQ(machine.phase(), JobPhase::running);
  commit();
  EXPECT_EQ(machine.final_step(), Step{3});
}

TEST_F(JobPause, a_fault_during_a_pause_is_made_up_for_and_the_pause_goes_on) {
  pause();
  kill(2);
  EXPECT_EQ(machine.phase(), JobPhase::fencing);
  answer_fence();
  prepare_all();
  EXPECT_EQ(machine.phase(), JobPhase::paused);
  all_up();  // its successor, which needs no vote
  EXPECT_EQ(machine.phase(), JobPhase::fencing);
  answer_fence();
  prepare_all();
  EXPECT_EQ(machine.phase(), JobPhase::paused);
  EXPECT_EQ(members(), ranks({0, 1, 3, 4}));
  feed(ResumeJob{});
  EXPECT_EQ(machine.phase(), JobPhase::running);
}

TEST_F(JobPause, a_pause_that_is_taken_back_before_the_vote_pauses_nothing) {
  run();
  feed(PauseJob{});
  const Generation next = said<effect::Intend>()->generation;
  feed(ResumeJob{});
  commit(next);
  change();
  EXPECT_EQ(machine.phase(), JobPhase::running);
}

TEST_F(JobPause, a_paused_job_can_be_cancelled) {
  pause();
  feed(Cancel{"it was cancelled", 130});
  all_down();
  EXPECT_EQ(said<effect::Ended>()->exit_code, 130);
}

}  // namespace
}  // namespace kintsugi
