// What is the same many times over is in a plan once. Ranks of a tensor-parallel group are one member. Shards of a layer
// are folded into fewer and larger ones: the plan is made for a model of the same layers and the same proportions, whose
// widths are divided by a power of two, as small as leaves every member a shard. Bytes are scaled back.
#pragma once

#include "engine/model/job_config.hpp"
#include "sim/scenario/scenario.hpp"

namespace kintsugi::sim {

struct Fold {
  JobConfig job;              // that the machine runs
  std::uint32_t members = 0;  // at full strength
  std::uint64_t shards = 0;   // of the folded model
  std::uint64_t real_shards = 0;
  double scale = 1;           // real elements of a folded one
  std::uint32_t divisor = 1;  // of widths
};

Fold fold_of(const Scenario& scenario);

}  // namespace kintsugi::sim
