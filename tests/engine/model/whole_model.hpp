// A whole model in one process on one device, one stream: the plainest trainer there is. It computes what a distributed
// step must compute, call by call: the reference of the executor, and what model tests and benchmarks run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/digest.hpp"
#include "engine/model/layer_program.hpp"

namespace kintsugi::test {

// Tokens of one microbatch, on the host: (sequences, length), row-major.
struct Microbatch {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
};

class WholeModel {
 public:
  struct Options {
    Precision precision = Precision::float32;
    MicrobatchShape shape;   // of a microbatch
    std::int64_t lanes = 1;  // each has gradients of its own
  };

  // State and gradients start at zero. The device must outlive the model.
  WholeModel(kernels::Device& device, const ModelConfig& config, const Options& options);
  ~WholeModel();

  const ModelLayout& layout() const { return layout_; }
  kernels::Stream& stream() { return *stream_; }
  // (count) T: what forward reads.
  const GroupViews& weights() const { return weights_; }

  // Master weights from a function of (parameter, element as it lies in the layout), then published.
  void set_weights(const std::function<float(const Parameter&, std::int64_t)>& value);
  // As a job starts: initialise_shard of every shard.
  void initialise();

  // Every byte that a step must write before it reads becomes NaN: saved, workspace, activations, gradients.
  void poison();

  // Forward and backward of a lane's microbatches, in order. Returns the sum of their token losses: float32 sums a
  // microbatch, added in order in float32.
  float run_lane(std::int64_t lane, std::span<const Microbatch> microbatches, float loss_scale);
  // The loss of one microbatch through forward and HeadInference; no gradients.
  float evaluate(const Microbatch& microbatch);

  // The canonical tree over all lanes for each use, then a group's uses in order. The lanes' gradients are used up.
  void reduce();
  // Of the reduced gradients: the sum over shards of squared norms, in shard order, in float64.
  double squared_gradient_norm();
  // AdamW on every shard, with scalars.weight_decay on matrices; returns the shards' digests. Publishes.
  std::vector<Digest> update(const kernels::AdamwScalars& scalars);
  // Work that was enqueued is done; a failed stream is a bug here.
  void synchronize();

  // On the host, in the layout's order.
  std::vector<float> reduced_gradient(GroupId group);
  std::vector<float> reduced_gradient(std::string_view parameter);
  std::vector<float> master(GroupId group);

  double flops_per_microbatch() const;  // forward and backward
  std::size_t bytes() const;            // of device memory held

 private:
  struct State {
    kernels::View master, moment1, moment2;  // (count) f32
  };
  // Gradients of one lane: [layer][group], (count) f32, for the groups the layer uses.
  using LaneGradients = std::vector<GroupViews>;

  kernels::View allocate(kernels::DType dtype, std::int64_t count);
  void allocate_state();
  void allocate_activations();
  void forward();
  float backward(const LaneGradients& gradients, bool accumulate, float loss_scale);
  void load(const Microbatch& microbatch);
  void publish();
  std::vector<float> to_host(const kernels::View& view);

  kernels::Device& device_;
  ModelLayout layout_;
  Options options_;
  std::unique_ptr<kernels::Stream> stream_;
  std::vector<std::unique_ptr<LayerProgram>> programs_;  // by layer
  std::vector<std::unique_ptr<kernels::Buffer>> buffers_;

  std::vector<State> state_;              // by group
  GroupViews weights_;                    // (count) T
  std::vector<LaneGradients> gradients_;  // by lane
  GroupViews reduced_;                    // (count) f32: where lane 0 keeps the owner's use
  kernels::View digests_;                 // (shards, 16) bytes
  kernels::View norms_;                   // (shards, 8) bytes: float64

  kernels::View tokens_, targets_;          // (rows) int32
  std::vector<kernels::View> activations_;  // by layer but the head: its output, (rows, width) T
  std::vector<kernels::View> saved_;        // by layer
  kernels::View grads_[2];                  // (rows, width) T, taking turns
  kernels::View workspace_;                 // bytes
  kernels::View loss_;                      // (1) f32
};

}  // namespace kintsugi::test
