// What a step takes under a plan: FLOPs and an efficiency for compute, bytes and bandwidth for what is not hidden.
//
// A member (a tensor-parallel group) works its lanes one microbatch after the other; the busiest member sets the pace. A
// pipeline adds its bubble, (stages - 1) / interleave microbatches (Narayanan et al., "Efficient large-scale language
// model training on GPU clusters", SC 2021, section 2.2).
#pragma once

#include "engine/model/layout.hpp"
#include "engine/plan/plan.hpp"
#include "sim/scenario/scenario.hpp"

namespace kintsugi::sim {

struct StepParts {     // seconds of one step
  double compute = 0;  // of the busiest member
  double bubble = 0;
  double tensor = 0;  // all-reduces inside a tensor-parallel group: in nobody's shadow
  double stages = 0;  // activations from stage to stage, as far as they are not overlapped
  double data = 0;    // reduce-scatter of gradients and all-gather of weights, as far as they are not overlapped
  double total() const { return compute + bubble + tensor + stages + data; }
};

// Shares of communication that compute does not hide: of the gradient sums and weights 1/8, because all but the last
// bucket and the first gather overlap (assumption); of activations 1/4 (assumption).
constexpr double kExposedData = 0.125, kExposedStages = 0.25;

class StepCost {
 public:
  explicit StepCost(const Scenario& scenario);

  // Under `plan`, whose layers and lanes are the workload's. `slow`: the factor of the slowest member.
  StepParts under(const Plan& plan, double slow = 1) const;
  // By member: seconds of its own compute in a step.
  double load(const Plan& plan, RankId member) const;
  double flops() const { return flops_; }  // of a step
  double tokens() const { return tokens_; }
  // Of one operation that a fence waits for: a microbatch of one stage.
  double operation(const Plan& plan) const;
  double parameters() const { return parameters_; }
  // Bytes that a member needs beside its shards before it can work: bfloat16 weights of its stage.
  double weights_of_stage() const;

 private:
  double lane_seconds(LayerRange layers) const;

  const Scenario& s_;
  ModelLayout layout_;
  std::vector<double> layer_seconds_;  // of one lane, by layer, on one member
  double flops_, tokens_, parameters_;
};

}  // namespace kintsugi::sim
