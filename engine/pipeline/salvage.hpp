// What a trainer leaves when a fault ends its generation: the partial sums of the step in progress, with the memory they lie
// in. The next trainer copies what the transition counts on into its own arena, from where peers may take it; then this
// goes. Until then a rank holds the step buffers of two generations; without any sums of use, of one.
#pragma once

#include <map>
#include <memory>

#include "engine/control/recovery.hpp"
#include "engine/model/layer_program.hpp"
#include "kernels/device.hpp"

namespace kintsugi {

struct Salvage {
  Step step;
  std::vector<LaneId> begun;
  std::map<LayerSum, GroupViews> sums;  // (count) f32 of each group that the layer uses
  kernels::View losses;                 // (microbatches of the step) f32; those of the head layer's sums are there
  std::unique_ptr<kernels::Buffer> arena, local;

  SumReport report() const {
    SumReport report{step, {}, begun};
    for (const auto& [sum, views] : sums) report.sums.push_back(sum);
    return report;
  }
};

}  // namespace kintsugi
