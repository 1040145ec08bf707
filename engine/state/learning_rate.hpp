// The scalars of one update: computed once, in float64 with + - * / alone, rounded to float32, then carried by the
// decision record (DESIGN 3.3). No mathematical library is asked, so every machine gets the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "engine/model/layout.hpp"
#include "kernels/ops.hpp"

namespace kintsugi {

// cos(pi x) for x in [0, 1], to 5e-16.
double portable_cos_pi(double x);
// base^exponent by squaring: relative error under 2^-52 times the exponent, as that of repeated multiplication.
double portable_power(double base, std::uint64_t exponent);

// The rate of the step that becomes final as `step` >= 1: linear from learning_rate / warmup_steps, at full height at
// warmup_steps, then the decay to minimum_learning_rate at decay_steps, and that from there on.
float learning_rate(const OptimizerConfig& config, Step step);
// 1 - beta^t for the t-th update, t >= 1.
float bias_correction(double beta, std::uint64_t t);
// What gradients are multiplied by so that their norm is at most `clip`; 1 if clip is 0. `norm` is finite: the vote
// makes anything else a SKIP.
float clip_scale(double norm, double clip);

// All of them. `weight_decay` is that of matrices; decay_ranges says where it applies.
kernels::AdamwScalars update_scalars(const OptimizerConfig& config, Step step, std::uint64_t t, double gradient_norm);

// Elements of the shard, from its own start, that take weight decay: those of matrices; ascending, merged where they
// touch. `parameters`: those of the shard's group.
std::vector<kernels::DecayRange> decay_ranges(std::span<const Parameter> parameters, const Shard& shard);
std::vector<kernels::DecayRange> decay_ranges(const ModelLayout& layout, const Shard& shard);

}  // namespace kintsugi
