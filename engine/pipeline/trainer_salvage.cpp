// Trainer: partial sums on their way from one generation to the next.
#include <set>

#include "engine/pipeline/trainer.hpp"

namespace kintsugi {

Result<void> Trainer::take_sums() {
  const RankBlueprint& b = *parts_.blueprint;
  const Salvage& from = *parts_.salvage;
  kernels::Ops& ops = parts_.device.ops();
  const auto per_lane = static_cast<std::uint32_t>(b.job.batch.microbatches_per_lane());
  for (std::size_t i = 0; i < b.first.kept.size(); ++i) {
    const LayerSum& sum = b.first.kept[i];
    const GroupViews& views = from.sums.at(sum);
    for (const GroupId g : b.layout.groups_used_by(sum.layer)) {
      ops.copy(*stream_, memory_.kept[i][g.value], views[g.value]);
    }
    if (sum.layer.value + 1 < b.layout.layer_count()) continue;
    const std::uint32_t first = sum.node.first * per_lane, count = sum.node.count * per_lane;
    ops.copy(*stream_, memory_.losses.slice(first, count), from.losses.slice(first, count));
  }
  if (from.step == step_in_progress()) begun_before_ = from.begun;
  KINTSUGI_TRY(wait_for_stream());
  parts_.salvage.reset();
  return {};
}

SumReport Trainer::sums() const {
  const RankBlueprint& b = *parts_.blueprint;
  SumReport report{step_in_progress(), {}, begun_before_};
  if (b.program.alone) return report;  // the sums of whose trees may be in their place
  if (is_first_step()) report.sums = b.first.kept;
  if (executor_ == nullptr || executor_->progress().step != report.step) return report;
  const StepProgress& progress = executor_->progress();
  report.begun.assign(progress.begun.begin(), progress.begun.end());
  for (const auto& [place, node] : progress.sums) report.sums.push_back({place.first, node});
  return report;
}

std::unique_ptr<Salvage> Trainer::salvage() {
  const RankBlueprint& b = *parts_.blueprint;
  const SumReport report = sums();
  auto left = std::make_unique<Salvage>(Salvage{report.step, report.begun, {}, memory_.losses, nullptr, nullptr});
  const std::set<LayerSum> wanted(report.sums.begin(), report.sums.end());
  const auto add = [&](const LayerSum& sum, const GroupViews& views) {
    if (wanted.contains(sum)) left->sums.emplace(sum, views);
  };
  // Those of an earlier step are as old as that.
  for (std::size_t i = 0; is_first_step() && i < b.first.kept.size(); ++i) add(b.first.kept[i], memory_.kept[i]);
  if (executor_ != nullptr && executor_->progress().step == report.step) {
    for (const auto& [place, node] : executor_->progress().sums) {
      const StageId stage = b.plan.stage_of(place.first);
      const std::uint32_t at = place.first.value - b.program.work(stage).layers.first;
      add({place.first, node}, memory_.stages.at(stage).gradients[place.second][at]);
    }
  }
  left->arena = std::move(parts_.arena);
  left->local = std::move(local_);
  return left;
}

RankId Trainer::teller(LaneId lane) const {
  const RankBlueprint& b = *parts_.blueprint;
  const StageId last{static_cast<std::uint32_t>(b.plan.stages.size() - 1)};
  std::optional<RankId> keeper;
  if (is_first_step()) keeper = b.redo.keeper({b.plan.stages.back().layers.end - 1}, lane);
  return keeper.value_or(b.plan.rank_of(last, lane));
}

}  // namespace kintsugi
