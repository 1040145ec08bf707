// Every buffer of a rank, laid out once for a generation: a function of (program, layout, job, layer programs). Sizes
// are known before any memory exists, so the node can be asked for exactly what is needed; nothing is allocated in a
// step.
//
// Two regions: the arena, which peers may read (stage outputs, boundary gradients, weights and gradients that other
// ranks take from here; never committed state), and the local one, for all else. Only local memory has huge pages
// everywhere: Linux gives shared memory none unless it was told to, and a step of GPT-2 124M took 14 % longer in small
// pages.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "engine/model/layer_program.hpp"
#include "engine/pipeline/program.hpp"

namespace kintsugi {

// Hands out aligned views from `base` upwards. With base 0 it only measures.
class ViewAllocator {
 public:
  explicit ViewAllocator(kernels::DevicePtr base) : base_(base) {}
  kernels::View take(kernels::DType dtype, std::int64_t count);
  std::size_t used_bytes() const { return used_; }

 private:
  kernels::DevicePtr base_;
  std::size_t used_ = 0;
};

using LayerPrograms = std::map<LayerId, std::unique_ptr<LayerProgram>>;
LayerPrograms make_layer_programs(const RankProgram& program, const ModelLayout& layout, const JobConfig& job,
                                  kernels::Ops& ops);

kernels::DType activation_dtype(Precision precision);
MicrobatchShape microbatch_shape(const JobConfig& job);

struct StageMemory {
  // By slot: (rows) int32; first stage only.
  std::vector<kernels::View> tokens;
  // By slot, then layer of the stage: (rows, width) T, the layer's input; absent for the embedding.
  std::vector<std::vector<kernels::View>> inputs;
  // By slot: (rows, width) T, in the arena: what the next stage reads; absent for the last stage.
  std::vector<kernels::View> outputs;
  // By slot, then layer: LayerProgram::saved_bytes().
  std::vector<std::vector<kernels::View>> saved;
  // By microbatch modulo 2: (rows, width) T. Of the stage's input, in the arena, for the stage before; absent in the
  // first.
  std::array<kernels::View, 2> input_gradients;
  // Likewise, of the stage's output, as received; absent in the last.
  std::array<kernels::View, 2> output_gradients;
  // By gradient buffer, then layer: (count) f32 of each group the layer uses.
  std::vector<std::vector<GroupViews>> gradients;
};

struct RankMemory {
  std::map<StageId, StageMemory> stages;
  GroupViews weights;                            // (count) T, by group, where the rank uses it
  kernels::View targets;                         // (rows) int32
  kernels::View workspace;                       // bytes; the most any layer needs
  std::array<kernels::View, 2> layer_gradients;  // (rows, width) T, between layers of a stage
  kernels::View losses;                          // (microbatches of the step) f32
  std::vector<GroupViews> kept;  // by program.kept: (count) f32 of each group its layer uses; in the arena
  // (count) f32, by shard. Where the rank is primary: in the arena if there are replicas. Where it holds a replica: as
  // received.
  std::map<ShardId, kernels::View> reduced;
  kernels::View reduced_use;    // (largest shard with several uses) f32
  kernels::View squared_norms;  // 8 bytes a shard, in the order of program.shards
  // 16 bytes a copy, in the order of program.shards, then program.replicas; and one more, for copies that pass through.
  kernels::View digests;

  std::size_t arena_bytes = 0;
  std::size_t local_bytes = 0;
  std::size_t parameter_bytes = 0;  // of `weights`
};

// Bases of zero: only the sizes are of use.
RankMemory lay_out_memory(const RankProgram& program, const ModelLayout& layout, const JobConfig& job,
                          const LayerPrograms& layers, kernels::DevicePtr arena, kernels::DevicePtr local);

}  // namespace kintsugi
