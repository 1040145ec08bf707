#include "engine/state/learning_rate.hpp"

#include <algorithm>
#include <cmath>

#include "base/assert.hpp"

namespace kintsugi {

double portable_cos_pi(double x) {
  KINTSUGI_ASSERT(x >= 0.0 && x <= 1.0);
  if (x > 0.5) return -portable_cos_pi(1.0 - x);
  // Taylor's series in (pi x)^2 <= 2.47; the first term left out is below 2e-19.
  const double y = 3.14159265358979323846 * x;
  const double y2 = y * y;
  double sum = 1.0;
  for (int k = 24; k >= 2; k -= 2) sum = 1.0 - sum * y2 / static_cast<double>(k * (k - 1));
  return sum;
}

double portable_power(double base, std::uint64_t exponent) {
  double result = 1.0;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

float learning_rate(const OptimizerConfig& config, Step step) {
  KINTSUGI_ASSERT(step.value >= 1);
  const double at = static_cast<double>(step.value);
  const double warmup = static_cast<double>(config.warmup_steps);
  if (at < warmup) return static_cast<float>(config.learning_rate * at / warmup);
  if (config.decay == LearningRateDecay::none) return static_cast<float>(config.learning_rate);
  const double end = static_cast<double>(config.decay_steps);
  const double done = end > warmup ? std::min(1.0, (at - warmup) / (end - warmup)) : 1.0;
  const double left = config.decay == LearningRateDecay::linear ? 1.0 - done : 0.5 * (1.0 + portable_cos_pi(done));
  const double range = config.learning_rate - config.minimum_learning_rate;
  return static_cast<float>(config.minimum_learning_rate + range * left);
}

float bias_correction(double beta, std::uint64_t t) {
  KINTSUGI_ASSERT(t >= 1 && beta >= 0.0 && beta < 1.0);
  return static_cast<float>(1.0 - portable_power(beta, t));
}

float clip_scale(double norm, double clip) {
  KINTSUGI_ASSERT(std::isfinite(norm) && norm >= 0.0);
  return clip > 0.0 && norm > clip ? static_cast<float>(clip / norm) : 1.0f;
}

kernels::AdamwScalars update_scalars(const OptimizerConfig& config, Step step, std::uint64_t t, double gradient_norm) {
  return {.learning_rate = learning_rate(config, step),
          .beta1 = static_cast<float>(config.beta1),
          .beta2 = static_cast<float>(config.beta2),
          .epsilon = static_cast<float>(config.epsilon),
          .weight_decay = static_cast<float>(config.weight_decay),
          .bias_correction1 = bias_correction(config.beta1, t),
          .bias_correction2 = bias_correction(config.beta2, t),
          .clip_scale = clip_scale(gradient_norm, config.clip)};
}

std::vector<kernels::DecayRange> decay_ranges(std::span<const Parameter> parameters, const Shard& shard) {
  std::vector<kernels::DecayRange> ranges;
  for (const Parameter& parameter : parameters) {
    KINTSUGI_ASSERT(parameter.group == shard.group);
    const std::int64_t begin = std::max(parameter.offset, shard.offset) - shard.offset;
    const std::int64_t end = std::min(parameter.offset + parameter.count(), shard.offset + shard.count) - shard.offset;
    if (!parameter.is_matrix || begin >= end) continue;
    KINTSUGI_ASSERT_MSG(ranges.empty() || ranges.back().end <= begin, "parameters come in the order of their offsets");
    if (!ranges.empty() && ranges.back().end == begin)
      ranges.back().end = end;
    else
      ranges.push_back({begin, end});
  }
  return ranges;
}

std::vector<kernels::DecayRange> decay_ranges(const ModelLayout& layout, const Shard& shard) {
  const ParameterGroup& group = layout.group(shard.group);
  return decay_ranges(std::span(layout.parameters()).subspan(group.first_parameter, group.parameter_count), shard);
}

}  // namespace kintsugi
