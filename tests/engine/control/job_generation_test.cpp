// Faults: whoever lives takes over, in every phase, and a fault within a change starts it over.
#include "tests/engine/control/job_case.hpp"

namespace kintsugi {
namespace {

using namespace job_event;  // NOLINT(google-build-using-namespace)
namespace effect = job_effect;
using testing::job_request;

class JobFaults : public testing::JobCase {};

TEST_F(JobFaults, survivors_take_over_from_a_dead_rank_at_once_and_training_goes_on_where_it_was) {
  run();
  commit();
  kill(2);
  ASSERT_NE(said<effect::Fence>(), nullptr);
  EXPECT_EQ(said<effect::Fence>()->generation, (Generation{1, 2}));
  EXPECT_EQ(said<effect::Fence>()->why, "rank 2 on node b was killed by signal 9 (Killed)");
  answer_fence();
  ASSERT_NE(said<effect::Prepare>(), nullptr);
  ASSERT_TRUE(said<effect::Prepare>()->transition);
  EXPECT_EQ(said<effect::Prepare>()->transition->step, step);
  EXPECT_EQ(said<effect::Prepare>()->transition->record, known);
  EXPECT_EQ(members(), ranks({0, 1, 3}));
  prepare_all();
  EXPECT_EQ(machine.phase(), JobPhase::running);
  commit();
  EXPECT_NE(said<effect::Report>(), nullptr);
}

TEST_F(JobFaults, a_death_in_any_phase_of_a_change_starts_it_over_with_a_higher_generation) {
  run();
  kill(2);
  feed(RankReported{machine.generation(), report_of({0})});
  kill(0);
  EXPECT_EQ(machine.generation().counter, 3U);
  feed(RankReported{{1, 2}, report_of({1})});  // to the fence before
  EXPECT_EQ(machine.dropped(), 1U);
  answer_fence();
  ASSERT_EQ(machine.phase(), JobPhase::preparing);
  const Plan plan = *machine.plan();
  feed(RankPrepared{{1}, machine.generation(), plan.digest(), step});
  kill(3);
  EXPECT_EQ(machine.generation().counter, 4U);
  change();
  EXPECT_EQ(members(), ranks({1}));
  commit();
  ASSERT_NE(said<effect::Incident>(), nullptr);
  EXPECT_EQ(said<effect::Incident>()->report.restarts, 2U);
  EXPECT_EQ(said<effect::Incident>()->report.target, "rank 2 on node b");
  EXPECT_EQ(said<effect::Incident>()->report.generation, (Generation{1, 4}));
}

TEST_F(JobFaults, a_death_before_anything_was_prepared_leaves_no_state_to_hand_over) {
  join(7, "a", 2);
  join(9, "b", 2);
  all_up();
  answer_fence();
  kill(1);
  answer_fence();
  ASSERT_NE(said<effect::Prepare>(), nullptr);
  EXPECT_FALSE(said<effect::Prepare>()->transition);
  EXPECT_EQ(members(), ranks({0, 2, 3}));
}

TEST_F(JobFaults, a_lost_node_takes_all_its_ranks_in_one_change) {
  run();
  commit();
  lose_node(9);
  EXPECT_EQ(machine.generation().counter, 2U);
  change();
  EXPECT_EQ(members(), ranks({0, 1}));
  commit();
  ASSERT_NE(said<effect::Incident>(), nullptr);
  EXPECT_EQ(said<effect::Incident>()->report.kind, "node lost");
  EXPECT_EQ(said<effect::Incident>()->report.target, "node b");
}

TEST_F(JobFaults, a_failed_transfer_is_evidence_against_nobody) {
  run();
  feed(RankFailed{{0}, machine.generation(), {ErrorAction::end_generation, "the connection to rank 3 is lost"}});
  EXPECT_EQ(machine.generation().counter, 2U);
  feed(RankFailed{{1}, {1, 1}, {ErrorAction::end_generation, "the connection to rank 3 is lost"}});  // the same fault
  EXPECT_EQ(machine.generation().counter, 2U);
  change();
  EXPECT_EQ(members(), ranks({0, 1, 2, 3}));
  commit();
  ASSERT_NE(said<effect::Incident>(), nullptr);
  EXPECT_EQ(said<effect::Incident>()->report.kind, "work failed");
}

TEST_F(JobFaults, a_death_explains_more_than_what_peers_say_of_it) {
  run();
  feed(RankFailed{{0}, machine.generation(), {ErrorAction::end_generation, "the connection to rank 3 is lost"}});
  kill(3);
  change();
  commit();
  ASSERT_NE(said<effect::Incident>(), nullptr);
  EXPECT_EQ(said<effect::Incident>()->report.kind, "rank lost");
  EXPECT_EQ(said<effect::Incident>()->report.target, "rank 3 on node b");
  EXPECT_EQ(said<effect::Incident>()->report.why, "rank 3 on node b was killed by signal 9 (Killed)");
}

TEST_F(JobFaults, a_fault_that_comes_back_with_every_generation_ends_the_job_and_is_told) {
  run();
  commit();
  for (std::uint32_t i = 0; i < kMaxChangesWithoutStep + 4; ++i) {
    feed(RankFailed{{0}, machine.generation(), {ErrorAction::end_generation, "bad cable"}});
    ASSERT_EQ(machine.phase(), JobPhase::fencing);
    change();
  }
  feed(RankFailed{{0}, machine.generation(), {ErrorAction::end_generation, "bad cable"}});
  ASSERT_NE(said<effect::Stop>(), nullptr);
  EXPECT_EQ(said<effect::Stop>()->why,
            "20 generation changes without a step becoming final; what happened last: rank 0 on node a: bad cable");
  EXPECT_NE(said<effect::Incident>(), nullptr);
}

TEST_F(JobFaults, a_record_that_only_survivors_knew_is_reported_and_trained_on_from) {
  run();
  commit();
  const DecisionRecord unseen = record(2);
  kill(3);
  known = unseen;
  step = unseen.step;
  answer_fence();
  EXPECT_EQ(machine.final_step().value, 2U);
  ASSERT_NE(said<effect::Report>(), nullptr);
  EXPECT_EQ(said<effect::Report>()->record, unseen);
  ASSERT_NE(said<effect::Prepare>(), nullptr);
  EXPECT_EQ(said<effect::Prepare>()->transition->step.value, 2U);
}

TEST_F(JobFaults, a_step_that_was_told_to_people_is_completed_by_ranks_that_hold_its_gradient) {
  run();
  const DecisionRecord told = record(1);
  feed(StepFinal{told});
  kill(3);
  const Generation g = machine.generation();
  for (const RankId rank : up) {
    RankReport report = report_of(rank);  // at step 0: the record did not reach them
    for (CopyReport& copy : report.copies) copy.has_next_gradient = true;
    feed(RankReported{g, report});
  }
  for (const NodeId node : nodes) feed(NodeReported{node, g, {}});
  ASSERT_NE(said<effect::Prepare>(), nullptr);
  EXPECT_EQ(said<effect::Prepare>()->transition->step.value, 1U);
  EXPECT_EQ(said<effect::Prepare>()->transition->record, told);
  EXPECT_EQ(said<effect::Report>(), nullptr);
}

TEST_F(JobFaults, a_record_that_arrives_after_the_fence_is_a_fact_all_the_same) {
  run();
  const DecisionRecord late = record(1);
  kill(3);
  feed(StepFinal{late});
  EXPECT_NE(said<effect::Report>(), nullptr);
  EXPECT_EQ(machine.phase(), JobPhase::fencing);
  EXPECT_EQ(machine.final_step().value, 1U);
  feed(StepFinal{late});
  EXPECT_EQ(machine.dropped(), 1U);
}

TEST_F(JobFaults, when_nobody_lives_new_ranks_take_over_the_memory_that_is_left) {
  run();
  commit();
  for (std::uint32_t r = 0; r < 4; ++r) kill(r);
  EXPECT_EQ(machine.phase(), JobPhase::starting);
  all_up();
  answer_fence();
  ASSERT_NE(said<effect::Prepare>(), nullptr);
  const Transition& t = *said<effect::Prepare>()->transition;
  EXPECT_EQ(t.step, step);
  std::set<ShardId> taken;
  for (const ShardMove& move : t.moves) {
    if (move.take_over) taken.insert(move.shard);
  }
  EXPECT_EQ(taken.size(), machine.plan()->shards.size());
  EXPECT_EQ(members(), ranks({4, 5, 6, 7}));
}

TEST_F(JobFaults, state_left_on_a_node_without_a_rank_gets_one_before_training_goes_on) {
  JobRequest request = job_request(3);
  request.config.resilience.replicas = 1;
  machine = JobMachine(request);
  last = machine.start(now);
  join(7, "a", 2);
  join(9, "b", 1);
  all_up();
  change();
  commit();
  kill(2);
  answer_fence();
  EXPECT_EQ(machine.phase(), JobPhase::starting);
  EXPECT_EQ(starting, (std::map<RankId, NodeId>{{{3}, {9}}}));
  all_up();
  change();
  EXPECT_EQ(members(), ranks({0, 1, 3}));
}

TEST_F(JobFaults, shards_of_which_no_copy_is_left_end_the_job_and_are_named) {
  run();
  commit();
  std::size_t lost = 0;
  for (std::uint32_t s = 0; s < resumed->shards.size(); ++s) {
    if (resumed->shards[s].has({0}) && resumed->shards[s].has({2})) ++lost;
  }
  kill(0);
  kill(2);
  left_behind.clear();
  answer_fence();
  ASSERT_NE(said<effect::Stop>(), nullptr);
  EXPECT_EQ(said<effect::Stop>()->why.find(std::to_string(lost) + " of 11 shards are lost"), 0U)
      << said<effect::Stop>()->why;
  EXPECT_NE(said<effect::Stop>()->why.find("no durable checkpoint to return to"), std::string::npos);
  all_down();
  EXPECT_EQ(said<effect::Ended>()->exit_code, 1);
}

TEST_F(JobFaults, state_that_no_step_was_made_from_is_made_anew_when_it_is_lost) {
  run();
  kill(0);
  kill(2);
  left_behind.clear();
  answer_fence();
  ASSERT_NE(said<effect::Prepare>(), nullptr);
  EXPECT_FALSE(said<effect::Prepare>()->transition.has_value());
  prepare_all();
  EXPECT_EQ(machine.phase(), JobPhase::running);
  EXPECT_EQ(members(), ranks({1, 3}));
}

TEST_F(JobFaults, the_loss_of_every_node_ends_the_job) {
  run();
  commit();
  lose_node(7);
  lose_node(9);
  ASSERT_NE(said<effect::Ended>(), nullptr);
  EXPECT_EQ(said<effect::Ended>()->exit_code, 1);
  EXPECT_EQ(said<effect::Ended>()->message.find("11 of 11 shards are lost"), 0U);
}

TEST_F(JobFaults, what_a_node_says_of_ranks_that_it_never_had_or_that_live_is_not_heard) {
  run();
  commit();
  kill(3);
  const Generation g = machine.generation();
  RankReport foreign = report_of({0});
  foreign.copies[0].version = {9};
  RankReport unknown = foreign;
  unknown.rank = {99};
  for (const RankId rank : up) feed(RankReported{g, report_of(rank)});
  feed(NodeReported{{7}, g, {foreign, unknown}});
  feed(NodeReported{{9}, g, {left_behind[{3}], foreign}});
  ASSERT_NE(said<effect::Prepare>(), nullptr);
  EXPECT_EQ(said<effect::Prepare>()->transition->step, step);
}

TEST_F(JobFaults, an_incident_tells_when_what_was_lost_and_how_much_was_moved) {
  run();
  commit();
  now = {2000};
  lose_node(9);
  now = {3000};
  answer_fence();
  std::uint64_t elements = 0;
  const ModelLayout layout(machine.request().config.model);
  for (const ShardMove& move : said<effect::Prepare>()->transition->moves) {
    EXPECT_FALSE(move.take_over);
    elements += static_cast<std::uint64_t>(layout.shard(move.shard).count);
  }
  now = {4000};
  prepare_all();
  EXPECT_EQ(said<effect::Incident>(), nullptr);
  now = {5000};
  commit();
  ASSERT_NE(said<effect::Incident>(), nullptr);
  const IncidentReport& i = said<effect::Incident>()->report;
  EXPECT_EQ(i.id, 1U);
  EXPECT_EQ(i.why, "node b is lost: connection reset");
  EXPECT_EQ(i.detected, Instant{2000});
  EXPECT_EQ(i.fenced, Instant{3000});
  EXPECT_EQ(i.resumed, Instant{4000});
  EXPECT_EQ(i.first_commit, Instant{5000});
  EXPECT_EQ(i.lanes_recomputed, 2U) << "those of the lost ranks: the others say they had begun none";
  EXPECT_GT(elements, 0U);
  EXPECT_EQ(i.bytes_moved, 12 * elements);
  EXPECT_EQ(i.steps_lost, 0U);
  commit();
  EXPECT_EQ(said<effect::Incident>(), nullptr);
}

JobRequest three_copies() {
  JobRequest request = testing::job_request(4);
  request.config.resilience.replicas = 3;
  return request;
}

class JobRackFaults : public testing::JobCase {
 protected:
  JobRackFaults() : JobCase(three_copies()) {
    join(7, "a", 2);
    join(9, "b", 1);
    join(11, "c", 1);
    all_up();
    change();
    commit();
  }
};

TEST_F(JobRackFaults, nodes_that_are_lost_while_others_answer_the_fence_make_no_further_generation) {
  lose_node(9);
  const Generation fenced = machine.generation();
  const RankReport of_lost = report_of({3});
  feed(RankReported{fenced, of_lost});
  feed(RankReported{fenced, report_of({0})});
  feed(NodeReported{{7}, fenced, {}});
  lose_node(11);
  EXPECT_EQ(said<effect::Fence>(), nullptr);
  feed(RankReported{fenced, of_lost});
  EXPECT_EQ(machine.dropped(), 1U) << "it is no member any more";
  feed(RankReported{fenced, report_of({1})});
  ASSERT_NE(said<effect::Prepare>(), nullptr) << "nobody else is awaited";
  EXPECT_EQ(machine.generation(), fenced);
  EXPECT_EQ(members(), ranks({0, 1}));
  prepare_all();
  commit();
  ASSERT_NE(said<effect::Incident>(), nullptr);
  EXPECT_EQ(said<effect::Incident>()->report.restarts, 0U);
}

TEST_F(JobRackFaults, the_last_answer_may_be_the_loss_of_who_was_awaited) {
  lose_node(9);
  const Generation fenced = machine.generation();
  for (const std::uint32_t rank : {0U, 1U}) feed(RankReported{fenced, report_of({rank})});
  feed(NodeReported{{7}, fenced, {}});
  EXPECT_EQ(machine.phase(), JobPhase::fencing);
  lose_node(11);
  EXPECT_EQ(machine.phase(), JobPhase::preparing);
  EXPECT_EQ(members(), ranks({0, 1}));
}

}  // namespace
}  // namespace kintsugi
