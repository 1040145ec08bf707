// What one layer computes, as calls of kernels::Ops: the same calls for a (lane, layer, microbatch) under every plan.
#pragma once

#include <memory>
#include <vector>

#include "engine/model/layout.hpp"
#include "kernels/ops.hpp"

namespace kintsugi {

// Views indexed by GroupId; empty where the rank does not hold the group.
using GroupViews = std::vector<kernels::View>;

struct MicrobatchShape {
  std::int64_t sequences = 0;
  std::int64_t length = 0;
  std::int64_t rows() const { return sequences * length; }
};

struct ForwardArguments {
  const GroupViews* weights = nullptr;  // (count) T
  kernels::View tokens;                 // (rows) int32; embedding only
  kernels::View in;                     // (rows, width) T; absent for the embedding
  kernels::View out;                    // (rows, width) T; absent for the head
  kernels::View saved;                  // saved_bytes() bytes, kept until this microbatch's backward
  kernels::View workspace;              // workspace_bytes() bytes, free again after the call's work
};

struct BackwardArguments {
  const GroupViews* weights = nullptr;    // the same version as in forward
  const GroupViews* gradients = nullptr;  // (count) f32, this layer's use of each group
  bool accumulate = false;                // false at the first microbatch of a lane: gradients are overwritten
  kernels::View tokens;                   // embedding only
  kernels::View targets;                  // (rows) int32; head only
  kernels::View in;                       // as in forward
  kernels::View grad_out;                 // (rows, width) T; absent for the head; may be overwritten
  kernels::View grad_in;                  // (rows, width) T; absent for the embedding; not the same as grad_out
  kernels::View saved;
  kernels::View workspace;
  kernels::View loss;    // (1) f32: sum of the token losses of this microbatch, unscaled; head only
  float loss_scale = 0;  // d(total) / d(token loss): 1 / tokens of the step
};

class LayerProgram {
 public:
  virtual ~LayerProgram() = default;
  virtual std::size_t saved_bytes() const = 0;
  virtual std::size_t workspace_bytes() const = 0;
  // Floating-point operations of matrix products and attention (a multiply-add counts two), for MFU and the planner.
  virtual double forward_flops() const = 0;
  virtual double backward_flops() const = 0;
  virtual void forward(kernels::Stream& stream, const ForwardArguments& arguments) = 0;
  virtual void backward(kernels::Stream& stream, const BackwardArguments& arguments) = 0;
};

// The head's forward does nothing: its logits, loss and gradients are computed together in backward, in chunks of rows
// that are a function of the shape alone, so that logits of a whole microbatch never exist at once.
std::unique_ptr<LayerProgram> make_layer_program(const ModelLayout& layout, LayerId layer, MicrobatchShape shape,
                                                 Precision precision, kernels::Ops& ops);

// For validation and generation. tokens, targets: as above; `in`: the head's input.
class HeadInference {
 public:
  HeadInference(const ModelLayout& layout, MicrobatchShape shape, Precision precision, kernels::Ops& ops);
  std::size_t workspace_bytes() const;
  // loss (1) f32: sum of token losses.
  void loss(kernels::Stream& stream, const GroupViews& weights, kernels::View in, kernels::View targets,
            kernels::View workspace, kernels::View loss);
  // logits (vocabulary) f32 of row `row`.
  void logits(kernels::Stream& stream, const GroupViews& weights, kernels::View in, std::int64_t row,
              kernels::View workspace, kernels::View logits);

 private:
  ModelLayout layout_;
  MicrobatchShape shape_;
  Precision precision_;
  kernels::Ops* ops_;
};

}  // namespace kintsugi
