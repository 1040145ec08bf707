// Trainer: partial sums on their way from one generation to the next.
#include <algorithm>

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
  SumReport report{step_in_progress(), {}, {}};
  if (is_first_step()) report.begun = begun_before_;
  const StepProgress* const progress = this->progress();
  if (progress != nullptr) report.begun.assign(progress->begun.begin(), progress->begun.end());
  for (const auto& [sum, views] : whole_sums()) report.sums.push_back(sum);
  return report;
}

const StepProgress* Trainer::progress() const {
  if (executor_ == nullptr || executor_->progress().step != step_in_progress()) return nullptr;
  return &executor_->progress();
}

std::map<LayerSum, GroupViews> Trainer::whole_sums() const {
  const RankBlueprint& b = *parts_.blueprint;
  std::map<LayerSum, GroupViews> sums;
  if (b.program.alone) return sums;  // a tree may have been finished in its first sum's place
  for (std::size_t i = 0; is_first_step() && i < b.first.kept.size(); ++i) {
    sums.emplace(b.first.kept[i], memory_.kept[i]);
  }
  const StepProgress* const progress = this->progress();
  if (progress == nullptr) return sums;
  for (const auto& [place, node] : progress->sums) {
    const auto& [layer, buffer] = place;
    const StageId stage = b.plan.stage_of(layer);
    const std::uint32_t at = layer.value - b.program.work(stage).layers.first;
    sums.emplace(LayerSum{layer, node}, memory_.stages.at(stage).gradients[buffer][at]);
  }
  return sums;
}

std::unique_ptr<Salvage> Trainer::salvage(const std::optional<Transition>& next) {
  auto left = std::make_unique<Salvage>(Salvage{step_in_progress(), sums().begun, {}, {}, nullptr, nullptr});
  const auto is_own = [&](const KeptSum& k) { return k.rank == parts_.blueprint->program.rank; };
  if (!next || std::none_of(next->sums.begin(), next->sums.end(), is_own)) return left;
  left->sums = whole_sums();
  left->losses = memory_.losses;
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
