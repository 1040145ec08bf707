// Jobs and plans for the tests of whatever reads plans.
#pragma once

#include <gtest/gtest.h>

#include "engine/plan/planner.hpp"

namespace kintsugi::testing {

inline JobConfig small_job(std::int64_t blocks, std::int64_t lanes, std::int64_t stages, std::int64_t per_lane = 1,
                           bool tied = true) {
  JobConfig job;
  job.name = "test";
  job.model = {.family = ModelFamily::gpt2,
               .layers = blocks,
               .width = 32,
               .heads = 2,
               .kv_heads = 2,
               .hidden = 128,
               .context = 16,
               .vocabulary = 64,
               .tied = tied};
  job.batch = {.sequences = lanes * per_lane, .microbatch = 1, .lanes = lanes, .length = 16};
  job.parallel.stages = stages;
  job.steps = 1;
  return job;
}

inline Plan plan_for(const JobConfig& job, std::uint32_t ranks, std::uint32_t nodes = 1) {
  PlanRequest request{{1}, {1}, {1, 1}, {}};
  for (std::uint32_t r = 0; r < ranks; ++r) request.members.push_back({{r}, {r * nodes / ranks}});
  Result<Plan> plan = make_plan(request, job, ModelLayout(job.model));
  EXPECT_TRUE(plan.ok());
  return *plan;
}

}  // namespace kintsugi::testing
