#include "sim/cost/step_cost.hpp"

#include <algorithm>

#include "engine/plan/cost.hpp"

namespace kintsugi::sim {

StepCost::StepCost(const Scenario& scenario)
    : s_(scenario),
      layout_(scenario.workload.model),
      flops_(step_flops(layout_, scenario.workload.batch)),
      tokens_(static_cast<double>(scenario.workload.batch.tokens_per_step())),
      parameters_(static_cast<double>(layout_.parameter_count())) {
  const Workload& w = s_.workload;
  const double member_flops = s_.cluster.system.rank_flops * static_cast<double>(w.tensor) * w.efficiency;
  for (std::uint32_t l = 0; l < layout_.layer_count(); ++l) {
    const LayerFlops flops = layer_flops(layout_, {l}, w.batch.sequences_per_lane(), w.batch.length);
    layer_seconds_.push_back(flops.total() / member_flops);
  }
}

double StepCost::lane_seconds(LayerRange layers) const {
  double seconds = 0;
  for (std::uint32_t l = layers.first; l < layers.end; ++l) seconds += layer_seconds_[l];
  return seconds;
}

double StepCost::load(const Plan& plan, RankId member) const {
  double seconds = 0;
  for (std::uint32_t s = 0; s < plan.stages.size(); ++s) {
    seconds += lane_seconds(plan.stages[s].layers) * plan.lanes_of({s}, member).count();
  }
  return seconds;
}

double StepCost::operation(const Plan& plan) const {
  double most = 0;
  for (const StagePlan& stage : plan.stages) most = std::max(most, lane_seconds(stage.layers));
  return most / static_cast<double>(s_.workload.batch.microbatches_per_lane());
}

double StepCost::weights_of_stage() const {
  return 2.0 * parameters_ / static_cast<double>(s_.workload.stages);
}

StepParts StepCost::under(const Plan& plan, double slow) const {
  const Workload& w = s_.workload;
  const SystemFigures& system = s_.cluster.system;
  const double members_of_stage = static_cast<double>(plan.ranks.size()) / static_cast<double>(plan.stages.size());
  std::vector<double> load(plan.ranks.back().rank.value + 1, 0.0);  // by rank number
  std::uint32_t most_lanes = 0;
  for (const StagePlan& stage : plan.stages) {
    const double lane = lane_seconds(stage.layers);
    for (const CellBlock& block : stage.blocks) {
      load[block.rank.value] += lane * block.lanes.count();
      most_lanes = std::max(most_lanes, block.lanes.count());
    }
  }
  StepParts parts;
  for (const double seconds : load) parts.compute = std::max(parts.compute, seconds);
  const double bubble_operations = static_cast<double>(w.stages - 1) / static_cast<double>(w.interleave);
  parts.bubble = operation(plan) * bubble_operations;
  parts.compute *= slow;

  // bfloat16 activations of a microbatch. Megatron's tensor parallelism: four all-reduces a block, forward and backward
  // together, each of which sends 2 (t - 1) / t of the bytes (Shoeybi et al. 2019, section 3).
  const double activation = 2.0 * static_cast<double>(w.batch.microbatch * w.batch.length * w.model.width);
  const double t = static_cast<double>(w.tensor);
  const double microbatches = static_cast<double>(most_lanes) * static_cast<double>(w.batch.microbatches_per_lane());
  const double blocks_of_stage = static_cast<double>(w.model.layers) / static_cast<double>(w.stages);
  parts.tensor = microbatches * blocks_of_stage * 4.0 * 2.0 * (t - 1.0) / t * activation / system.local_bandwidth;
  if (w.stages > 1) {
    const double sends = 2.0 * static_cast<double>(w.interleave) * microbatches;
    parts.stages = kExposedStages * sends * (activation / t / system.rank_bandwidth + system.latency);
  }
  if (members_of_stage > 1) {
    // float32 gradient sums in, bfloat16 weights out, each (n - 1) / n of a stage's parameters, over all links of a member.
    const double bytes =
        6.0 * parameters_ / static_cast<double>(w.stages) * (members_of_stage - 1.0) / members_of_stage;
    // Sums are added inside a pod first: between pods each member sends its part of what is left.
    const double pods = std::min<double>(s_.cluster.pods, members_of_stage);
    const double between = bytes * (pods - 1) / members_of_stage * system.oversubscription;
    parts.data = kExposedData * (bytes + between) / (t * system.rank_bandwidth);
  }
  return parts;
}

}  // namespace kintsugi::sim
