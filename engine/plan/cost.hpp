// What a layer costs, from shapes alone: what the planner balances by, and the FLOPs that MFU counts.
#pragma once

#include "engine/model/layout.hpp"

namespace kintsugi {

// Multiply-adds count two; backward is twice forward. Attention counts the causal half.
struct LayerFlops {
  double forward = 0;
  double backward = 0;
  double total() const { return forward + backward; }
};

LayerFlops layer_flops(const ModelLayout& layout, LayerId layer, std::int64_t sequences, std::int64_t length);
// One step of the job.
double step_flops(const ModelLayout& layout, const BatchConfig& batch);

}  // namespace kintsugi
