#include <gtest/gtest.h>

#include <algorithm>

#include "base/philox.hpp"
#include "tests/engine/pipeline/survival_harness.hpp"

namespace kintsugi::test {
namespace {

using transport::MessageKind;
using Kind = PeerCall::Kind;

std::size_t count_moves(const Transition& transition, bool take_over) {
  return static_cast<std::size_t>(std::count_if(transition.moves.begin(), transition.moves.end(),
                                                [&](const ShardMove& m) { return m.take_over == take_over; }));
}

TEST(Survival, a_primary_that_dies_with_its_node_before_the_vote_costs_the_step_and_no_bits) {
  const TemporaryFolder folder;
  const JobConfig job = tiny_training_job(folder, 1);
  const SurvivalOutcome outcome =
      expect_same_bits({job, ranks_apart(3), {{{2}, call(Kind::receive, MessageKind::partial_sum, 2)}}});
  EXPECT_EQ(outcome.transitions[0].step, Step{1});
  EXPECT_EQ(outcome.records.size(), 4U);
}

TEST(Survival, a_step_whose_record_reached_a_survivor_is_final_for_those_that_never_heard_of_it) {
  const TemporaryFolder folder;
  const JobConfig job = tiny_training_job(folder, 2);
  // The root tells rank 1, then dies before it tells rank 2.
  const Fault root{{0}, call(Kind::send, MessageKind::decision, 2, RankId{2}), Remains::nothing, {{1}}};
  const SurvivalOutcome outcome = expect_same_bits({job, ranks_apart(3), {root}});
  EXPECT_EQ(outcome.transitions[0].step, Step{2});
  EXPECT_EQ(outcome.transitions[0].record->generation, (Generation{1, 1}));
  // One that voted dies before it hears; all others hold the record.
  const Fault leaf{{2}, call(Kind::receive, MessageKind::decision, 3), Remains::memory, {{0}, {1}}};
  EXPECT_EQ(expect_same_bits({job, ranks_apart(3), {leaf}}).transitions[0].step, Step{3});
}

TEST(Survival, a_record_that_only_a_dead_root_held_counts_while_its_node_lives_and_never_was_without_it) {
  const TemporaryFolder folder;
  const JobConfig job = tiny_training_job(folder, 1);
  for (const auto& [remains, step] : {std::pair{Remains::memory, Step{2}}, {Remains::nothing, Step{1}}}) {
    const Fault fault{{0}, call(Kind::send, MessageKind::decision, 2, RankId{1}), remains};
    EXPECT_EQ(expect_same_bits({job, ranks_apart(3), {fault}}).transitions[0].step, step);
  }
}

TEST(Survival, a_replica_holder_that_dies_before_it_has_the_gradient_is_replaced) {
  const TemporaryFolder folder;
  const JobConfig job = tiny_training_job(folder, 1);
  const Fault fault{{1}, call(Kind::receive, MessageKind::reduced_gradient, 3), Remains::nothing, {}, {{{4}, {9}}}};
  const SurvivalOutcome outcome = expect_same_bits({job, ranks_apart(4), {fault}});
  EXPECT_GT(count_moves(outcome.transitions[0], false), 0U);
  EXPECT_EQ(outcome.records.at({3}).failure_domains, 2) << "replicas are made anew before training goes on";
}

// It dies after the apply of its primaries, before it lends their weights.
TEST(Survival, memory_of_a_dead_rank_goes_to_its_nodes_next_rank_if_it_is_whole_and_is_made_anew_if_not) {
  const TemporaryFolder folder;
  const JobConfig job = tiny_training_job(folder, 1);
  const PlanMember joiner{{3}, {2}};
  const auto publishing = call(Kind::send, MessageKind::weights, 2);
  const SurvivalOutcome whole =
      expect_same_bits({job, ranks_apart(3), {{{2}, publishing, Remains::memory, {{0}, {1}}, {joiner}}}});
  EXPECT_GT(count_moves(whole.transitions[0], true), 0U);
  const SurvivalOutcome torn =
      expect_same_bits({job, ranks_apart(3), {{{2}, publishing, Remains::memory_applying, {{0}, {1}}, {joiner}}}});
  EXPECT_EQ(count_moves(torn.transitions[0], true), 0U);
  EXPECT_GT(count_moves(torn.transitions[0], false), count_moves(whole.transitions[0], false));
}

TEST(Survival, one_of_two_ranks_goes_on_alone_and_grows_again) {
  const TemporaryFolder folder;
  const JobConfig job = tiny_training_job(folder, 2);
  for (const std::uint32_t victim : {0U, 1U}) {
    const RankId other{1 - victim};
    const Fault death{{victim}, call(Kind::send, MessageKind::contribution, 2), Remains::nothing};
    const Fault no_vote{{victim}, call(Kind::receive, MessageKind::contribution, 2), Remains::nothing};
    const SurvivalOutcome alone = expect_same_bits({job, ranks_apart(2), {victim == 0 ? no_vote : death}});
    EXPECT_EQ(alone.records.at({4}).failure_domains, 1);
    EXPECT_TRUE(alone.transitions[0].moves.empty());

    // Then two new ranks, which hold nothing.
    Fault growth = victim == 0 ? no_vote : death;
    growth.joiners = {{{5}, {5}}, {{6}, {6}}};
    const Fault broken{other, call(Kind::receive, MessageKind::reduced_gradient, 4), std::nullopt};
    const SurvivalOutcome grown = expect_same_bits({job, ranks_apart(2), {growth, broken}, 5});
    EXPECT_EQ(grown.records.at({5}).failure_domains, 2);
  }
}

TEST(Survival, death_after_death_in_a_pipeline) {
  const TemporaryFolder folder;
  const JobConfig job = tiny_training_job(folder, 4);
  const Fault first{{4}, call(Kind::receive, MessageKind::activation, 1), Remains::nothing};
  const Fault second{{0}, call(Kind::send, MessageKind::weights, 2), Remains::nothing, {}, {{{7}, {7}}}};
  const Fault third{{2}, call(Kind::receive, MessageKind::activation_gradient, 4), Remains::memory};
  const SurvivalOutcome outcome = expect_same_bits({job, ranks_apart(6), {first, second, third}, 5});
  EXPECT_EQ(outcome.transitions[0].step, Step{0});
  EXPECT_EQ(outcome.transitions[2].step, Step{3});
}

TEST(Survival, a_death_while_copies_are_on_their_way_ends_that_generation_alone) {
  const TemporaryFolder folder;
  JobConfig job = tiny_training_job(folder, 2);
  job.resilience.replicas = 3;
  const Fault first{{3}, call(Kind::receive, MessageKind::activation, 2), Remains::nothing, {}, {{{5}, {5}}}};
  for (const Kind kind : {Kind::send, Kind::receive}) {
    const RankId victim{kind == Kind::send ? 0U : 5U};
    Fault second{victim, call(kind, MessageKind::state, 1), Remains::nothing};
    second.in_take_over = true;
    const SurvivalOutcome outcome = expect_same_bits({job, ranks_apart(4), {first, second}});
    EXPECT_EQ(outcome.transitions[1].step, Step{1});
  }
}

TEST(Survival, a_fault_in_the_closing_vote_is_survived_without_another_step) {
  const TemporaryFolder folder;
  const JobConfig job = tiny_training_job(folder, 1);
  const Fault fault{{1}, call(Kind::send, MessageKind::contribution, 5), Remains::nothing};
  const SurvivalOutcome outcome = expect_same_bits({job, ranks_apart(3), {fault}});
  EXPECT_EQ(outcome.transitions[0].step, Step{4});
}

std::uint64_t kept_lanes(const Transition& transition, LayerId layer, RankId rank) {
  std::uint64_t lanes = 0;
  for (const KeptSum& k : transition.sums) {
    if (k.rank == rank && k.sum.layer == layer) lanes += k.sum.node.count;
  }
  return lanes;
}

// Whatever the victim was about to do in steps 2 and 3.
TEST(Survival, no_lane_that_a_survivor_had_finished_is_computed_again) {
  const TemporaryFolder folder;
  const JobConfig job = tiny_training_job(folder, 1);
  const auto per_lane = static_cast<std::uint64_t>(job.batch.microbatches_per_lane());
  std::uint64_t kept = 0, again = 0;
  for (std::uint64_t n = 40; n < 160; n += 3) {
    SCOPED_TRACE(::testing::Message() << "call " << n);
    const RankId victim{static_cast<std::uint32_t>(n % 4)};
    const SurvivalOutcome outcome = expect_same_bits({job, ranks_apart(4), {{victim, nth_call(n)}}});
    const Transition& began = outcome.transitions[0];
    for (const auto& [rank, account] : outcome.accounts[0]) {
      if (rank == victim) continue;
      const std::uint64_t lanes = outcome.plans[0].lanes_of({0}, rank).count();
      const std::uint64_t finished = account.work.backward / per_lane - began.step.value * lanes;
      EXPECT_EQ(kept_lanes(began, {0}, rank), finished) << "rank " << rank.value;
      kept += finished;
    }
    again += began.again.size();
    EXPECT_LE(began.again.size(), outcome.plans[0].lanes_of({0}, victim).count() + 3U)
        << "and what three had half done";
  }
  EXPECT_GT(kept, 0U);
  EXPECT_GT(again, 0U);
}

TEST(Survival, sums_that_survived_a_fault_survive_the_next_one_in_the_same_step) {
  const TemporaryFolder folder;
  for (const std::int64_t stages : {1, 2}) {
    JobConfig job = tiny_training_job(folder, stages);
    job.resilience.replicas = 3;
    // Two die before they vote, the third while it takes over.
    const Fault first{{3}, call(Kind::send, MessageKind::contribution, 2), Remains::nothing, {}, {{{5}, {5}}}};
    const Fault second{{1}, call(Kind::send, MessageKind::contribution, 2), Remains::memory};
    Fault third{{5}, nth_call(0), Remains::nothing};
    third.in_take_over = true;
    const SurvivalOutcome outcome = expect_same_bits({job, ranks_apart(4), {first, second, third}});
    for (const Transition& began : outcome.transitions) {
      EXPECT_EQ(began.step, Step{1});
      EXPECT_GT(began.sums.size(), 0U);
    }
    for (const LayerId layer : {LayerId{0}, LayerId{5}}) {
      EXPECT_LE(kept_lanes(outcome.transitions[0], layer, {0}), kept_lanes(outcome.transitions[2], layer, {0}))
          << "what rank 0 has it keeps";
    }
  }
}

// Two faults: any rank, any call, anything that is left of it, anybody in its place.
std::vector<Fault> draw_faults(std::uint64_t seed) {
  std::uint64_t drawn = 0;
  const auto draw = [&](std::uint64_t below) { return philox_u64(philox_key(seed), drawn++, 0) % below; };
  std::vector<RankId> living{{0}, {1}, {2}};
  std::vector<Fault> faults;
  for (std::uint32_t i = 0; i < 2; ++i) {
    const auto victim = living.begin() + static_cast<std::ptrdiff_t>(draw(living.size()));
    Fault fault{*victim, nth_call(draw(120))};  // a rank makes as many in two steps
    const std::optional<Remains> remains[] = {std::nullopt, Remains::memory, Remains::memory_applying,
                                              Remains::nothing};
    fault.remains = remains[draw(4)];
    fault.in_take_over = i > 0;  // perhaps
    if (fault.remains) {
      living.erase(victim);
      const RankId joiner{10 + i};
      const NodeId node{draw(2) == 0 ? fault.victim.value : joiner.value};
      if (draw(2) == 0) {
        fault.joiners.push_back({joiner, node});
        living.push_back(joiner);
      }
    }
    faults.push_back(std::move(fault));
  }
  return faults;
}

// One to four stages, both schedules, lanes that no power of two divides, a head with weights of its own.
JobConfig draw_shape(const TemporaryFolder& folder, std::uint64_t seed) {
  JobConfig job = tiny_training_job(folder, 1 + static_cast<std::int64_t>(seed % 4));
  if (seed % 3 == 0) job.parallel.schedule = ScheduleKind::gpipe;
  if (seed % 5 == 0) job.batch.lanes = job.batch.sequences = 5;
  job.model.tied = seed % 7 != 0;
  job.resilience.replicas = 3;  // the second death may come before the first one's copies are made anew
  return job;
}

void survive_anything(const MakeDevice& devices, std::uint64_t first_seed, std::uint64_t end_seed) {
  const TemporaryFolder folder;
  for (std::uint64_t seed = first_seed; seed < end_seed; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    expect_same_bits({draw_shape(folder, seed), ranks_apart(3), draw_faults(seed), 6, devices});
  }
}

TEST(Survival, any_rank_may_die_at_any_call) {
  survive_anything(cpu_devices(), 0, 24);
}

TEST(Survival, nothing_of_a_generation_change_touches_device_memory_or_forgets_an_order) {
  survive_anything(fake_devices(3), 100, 104);
}

}  // namespace
}  // namespace kintsugi::test
