// Pipeline schedules as data (GPipe: Huang et al. 2019; 1F1B: Narayanan et al., PipeDream, 2019).
//
// A schedule gives every task (phase, stage, microbatch) of the canonical pipeline a virtual time at which all that it
// depends on has a smaller one. A rank's list is the canonical order restricted to its cells. So any assignment of
// cells to ranks is free of deadlock, holds at most the canonical number of activations, and runs the microbatches of
// every stage in ascending order: under every plan a gradient is accumulated in the same order.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/job_config.hpp"
#include "engine/plan/plan.hpp"

namespace kintsugi {

enum class PipelinePhase : std::uint8_t { forward, backward };

struct PipelineTask {
  PipelinePhase phase = PipelinePhase::forward;
  StageId stage;
  std::uint32_t microbatch = 0;  // of the step: lane * microbatches_per_lane + index in the lane
  auto operator<=>(const PipelineTask&) const = default;
};

// With S stages and n microbatches, s the stage and i the microbatch:
//   1F1B    forward s + 2i    backward 2S - 1 - s + 2i         (stage s holds at most S - s microbatches)
//   GPipe   forward s + i     backward n + 2S - 2 - s + i      (holds all n)
std::uint64_t virtual_time(ScheduleKind kind, const PipelineTask& task, std::uint32_t stages,
                           std::uint32_t microbatches);

// What `rank` executes in a step, in order. Equal times: backward first (it frees), then by stage.
std::vector<PipelineTask> rank_tasks(const Plan& plan, RankId rank, ScheduleKind kind,
                                     std::uint32_t microbatches_per_lane);

}  // namespace kintsugi
