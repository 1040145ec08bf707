#include "engine/pipeline/schedule.hpp"

#include <map>
#include <set>

#include "base/philox.hpp"
#include "tests/engine/plan/plan_cases.hpp"

namespace kintsugi {
namespace {

// Any assignment: each stage's lanes cut at random, each block given to a random rank that has none in the stage.
Plan random_plan(std::uint64_t seed, std::uint32_t stages, std::uint32_t lanes, std::uint32_t ranks) {
  std::uint64_t draws = 0;
  const auto draw = [&](std::uint32_t n) {
    return static_cast<std::uint32_t>(philox_u64(philox_key(seed), draws++, 0) % n);
  };
  Plan plan;
  plan.lanes = lanes;
  for (std::uint32_t r = 0; r < ranks; ++r) plan.ranks.push_back({{r}, {1}});
  for (std::uint32_t s = 0; s < stages; ++s) {
    StagePlan stage{{s, s + 1}, {}};
    std::set<std::uint32_t> free;
    for (std::uint32_t r = 0; r < ranks; ++r) free.insert(r);
    for (std::uint32_t lane = 0; lane < lanes;) {
      const std::uint32_t end = free.size() == 1 ? lanes : lane + 1 + draw(lanes - lane);
      auto rank = free.begin();
      std::advance(rank, draw(static_cast<std::uint32_t>(free.size())));
      stage.blocks.push_back({{*rank}, {lane, end}});
      free.erase(rank);
      lane = end;
    }
    plan.stages.push_back(stage);
  }
  return plan;
}

// Runs every rank's list as far as its dependencies allow, until all are done or nothing moves.
bool completes(const Plan& plan, ScheduleKind kind, std::uint32_t per_lane) {
  const std::uint32_t stages = static_cast<std::uint32_t>(plan.stages.size());
  std::vector<std::vector<PipelineTask>> lists;
  for (std::uint32_t r = 0; r < plan.rank_count(); ++r) lists.push_back(rank_tasks(plan, {r}, kind, per_lane));
  std::vector<std::size_t> next(lists.size(), 0);
  std::set<PipelineTask> done;
  const auto ready = [&](const PipelineTask& t) {
    if (t.phase == PipelinePhase::forward) {
      return t.stage.value == 0 || done.contains({PipelinePhase::forward, {t.stage.value - 1}, t.microbatch});
    }
    if (!done.contains({PipelinePhase::forward, t.stage, t.microbatch})) return false;
    return t.stage.value + 1 == stages || done.contains({PipelinePhase::backward, {t.stage.value + 1}, t.microbatch});
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < lists.size(); ++r) {
      while (next[r] < lists[r].size() && ready(lists[r][next[r]])) {
        done.insert(lists[r][next[r]++]);
        moved = true;
      }
    }
  }
  return done.size() == std::size_t{2} * stages * plan.lanes * per_lane;
}

TEST(Schedule, any_assignment_of_cells_to_ranks_is_free_of_deadlock) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const std::uint32_t stages = 1 + seed % 6;
    const std::uint32_t lanes = 1 + seed % 7;
    const Plan plan = random_plan(seed, stages, lanes, 1 + seed % 5);
    for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b}) {
      EXPECT_TRUE(completes(plan, kind, 1 + seed % 3)) << "seed " << seed;
    }
  }
}

TEST(Schedule, what_a_task_depends_on_has_a_smaller_virtual_time) {
  for (std::uint32_t stages = 1; stages <= 8; ++stages) {
    for (std::uint32_t n = 1; n <= 12; ++n) {
      for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b}) {
        const auto time = [&](PipelinePhase phase, std::uint32_t s, std::uint32_t i) {
          return virtual_time(kind, {phase, {s}, i}, stages, n);
        };
        for (std::uint32_t s = 0; s < stages; ++s) {
          for (std::uint32_t i = 0; i < n; ++i) {
            if (s > 0) {
              EXPECT_LT(time(PipelinePhase::forward, s - 1, i), time(PipelinePhase::forward, s, i));
              EXPECT_LT(time(PipelinePhase::backward, s, i), time(PipelinePhase::backward, s - 1, i));
            }
            EXPECT_LT(time(PipelinePhase::forward, s, i), time(PipelinePhase::backward, s, i));
            // A boundary gradient has two buffers: its reader is done before the third is written.
            if (s > 0 && i >= 2) {
              EXPECT_LT(time(PipelinePhase::backward, s - 1, i - 2), time(PipelinePhase::backward, s, i));
            }
          }
        }
      }
    }
  }
}

TEST(Schedule, a_stage_runs_its_microbatches_in_ascending_order_and_1f1b_holds_at_most_min_s_m) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::uint32_t stages = 1 + seed % 5;
    const Plan plan = random_plan(seed, stages, 1 + seed % 8, 1 + seed % 4);
    const std::uint32_t per_lane = 1 + seed % 3;
    for (std::uint32_t r = 0; r < plan.rank_count(); ++r) {
      std::map<StageId, std::uint32_t> held, next_forward, next_backward;
      for (const PipelineTask& t : rank_tasks(plan, {r}, ScheduleKind::one_f_one_b, per_lane)) {
        const std::uint32_t first = plan.lanes_of(t.stage, {r}).first * per_lane;
        auto& next = t.phase == PipelinePhase::forward ? next_forward : next_backward;
        EXPECT_EQ(t.microbatch, first + next[t.stage]++);
        if (t.phase == PipelinePhase::backward)
          --held[t.stage];
        else
          ++held[t.stage];
        const std::uint32_t microbatches = plan.lanes_of(t.stage, {r}).count() * per_lane;
        EXPECT_LE(held[t.stage], std::min(stages - t.stage.value, microbatches));
      }
    }
  }
}

}  // namespace
}  // namespace kintsugi
