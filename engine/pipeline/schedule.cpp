#include "engine/pipeline/schedule.hpp"

#include <algorithm>
#include <tuple>

namespace kintsugi {

std::uint64_t virtual_time(ScheduleKind kind, const PipelineTask& task, std::uint32_t stages,
                           std::uint32_t microbatches) {
  KINTSUGI_ASSERT(task.stage.value < stages && task.microbatch < microbatches);
  const std::uint64_t s = task.stage.value;
  const std::uint64_t i = task.microbatch;
  const bool forward = task.phase == PipelinePhase::forward;
  switch (kind) {
    case ScheduleKind::one_f_one_b: return forward ? s + 2 * i : 2 * std::uint64_t{stages} - 1 - s + 2 * i;
    case ScheduleKind::gpipe: return forward ? s + i : std::uint64_t{microbatches} + 2 * stages - 2 - s + i;
  }
  KINTSUGI_UNREACHABLE();
}

std::vector<PipelineTask> rank_tasks(const Plan& plan, RankId rank, ScheduleKind kind,
                                     std::uint32_t microbatches_per_lane) {
  const std::uint32_t stages = static_cast<std::uint32_t>(plan.stages.size());
  const std::uint32_t microbatches = plan.lanes * microbatches_per_lane;
  std::vector<PipelineTask> tasks;
  for (std::uint32_t s = 0; s < stages; ++s) {
    const LaneRange lanes = plan.lanes_of({s}, rank);
    for (std::uint32_t i = lanes.first * microbatches_per_lane; i < lanes.end * microbatches_per_lane; ++i) {
      tasks.push_back({PipelinePhase::forward, {s}, i});
      tasks.push_back({PipelinePhase::backward, {s}, i});
    }
  }
  const auto key = [&](const PipelineTask& t) {
    return std::tuple(virtual_time(kind, t, stages, microbatches), t.phase == PipelinePhase::forward, t.stage,
                      t.microbatch);
  };
  std::sort(tasks.begin(), tasks.end(), [&](const PipelineTask& a, const PipelineTask& b) { return key(a) < key(b); });
  return tasks;
}

}  // namespace kintsugi
