// The mathematics on device memory. Every call enqueues on `stream`; views are contiguous and row-major; shapes are in
// the argument structs and are asserted against the views.
//
// Rules that hold for every backend (DESIGN 3.2):
//  * The result depends on the arguments alone: never on the number of threads, on alignment or on what ran before.
//    Work is cut into pieces that are functions of the shape; a piece is computed by one thread.
//  * `T` is float32 or bfloat16 as the activations' dtype says; sums are float32 or wider; rounding to T happens once,
//    when an output of an op is stored.
//  * Gradients of parameters are float32. `accumulate` false: stored; true: added, after the op's own sum is complete or
//    inside the matrix product's chain (a function of the shape alone).
//  * Each compute thread sets flush-to-zero and round-to-nearest itself.
#pragma once

#include <span>
#include <vector>

#include "kernels/device.hpp"

namespace kintsugi::kernels {

// y[rows, outputs] = x[rows, inputs] * w[outputs, inputs]^T (+ bias[outputs])
struct LinearShape {
  std::int64_t rows = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
};

// Sequences of `length` tokens; `heads` query heads share `kv_heads` key/value heads (heads % kv_heads == 0). Rows of
// q, k, v and out are (sequence, position); the strides are the elements from one row to the next, so that q, k and v
// may lie interleaved in one (rows, (heads + 2 kv_heads) * head_dim) buffer. Head h of a row is at h * head_dim.
struct AttentionShape {
  std::int64_t sequences = 0;
  std::int64_t length = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t q_stride = 0;
  std::int64_t kv_stride = 0;
  std::int64_t out_stride = 0;
};

// A view with rows apart from one another: the first `columns` elements of each row of `stride` elements from `base`.
// base.count covers (rows - 1) * stride + columns at least.
struct StridedView {
  View base;
  std::int64_t stride = 0;
};

struct AdamwScalars {
  // One step's scalars, computed once and carried by the decision record.
  float learning_rate = 0;
  float beta1 = 0;
  float beta2 = 0;
  float epsilon = 0;
  float weight_decay = 0;      // 0 for parameters without decay
  float bias_correction1 = 1;  // 1 - beta1^t
  float bias_correction2 = 1;  // 1 - beta2^t
  float clip_scale = 1;
};

// Parameters [begin, end) of a shard that take weight decay.
struct DecayRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// The written sequence of the update, every operation rounded once to float32, none fused:
//   g = gradient * clip_scale
//   m = beta1 * m + (1 - beta1) * g                 (1 - beta1 rounded once)
//   v = beta2 * v + (1 - beta2) * (g * g)
//   mhat = m / bias_correction1;  vhat = v / bias_correction2
//   u = mhat / (sqrt(vhat) + epsilon)
//   d = weight_decay * w   (inside `decay` ranges; 0 elsewhere, and the sum below is then u itself)
//   w = w - learning_rate * (u + d)
// then published = round_to_nearest_even(w) in the dtype of `published`.
struct AdamwArguments {
  View master;                        // (n) f32
  View moment1;                       // (n) f32
  View moment2;                       // (n) f32
  View gradient;                      // (n) f32, reduced, not yet clipped
  View published;                     // (n) f32 or bf16; empty: not stored
  std::span<const DecayRange> decay;  // copied at the call
  AdamwScalars scalars;
  View digest;  // (16) byte: the shard digest of the new state, see state_digest
};

class Ops {
 public:
  virtual ~Ops() = default;

  // --- movement -------------------------------------------------------------------------------------------------
  virtual void fill(Stream&, View out, float value) = 0;    // f32 or bf16
  virtual void copy(Stream&, View out, View in) = 0;        // same dtype and count
  virtual void convert(Stream&, View out, View in) = 0;     // f32 <-> bf16, round to nearest even
  virtual void add(Stream&, View out, View a, View b) = 0;  // out may be a or b

  // --- embedding ------------------------------------------------------------------------------------------------
  // out[r] = table[tokens[r]] (+ positions[r % length]); tokens (rows) int32 < vocabulary; positions may be empty.
  virtual void embedding_forward(Stream&, View out, View tokens, View table, View positions, std::int64_t width,
                                 std::int64_t length) = 0;
  // grad_table[tokens[r]] += grad_out[r], in row order; grad_positions[p] += sum over sequences in order.
  virtual void embedding_backward(Stream&, View grad_table, View grad_positions, View grad_out, View tokens,
                                  std::int64_t width, std::int64_t length, bool accumulate) = 0;

  // --- normalisation, over rows of `width` ------------------------------------------------------------------------
  // mean, rstd: (rows) f32, kept for backward. epsilon is added to the variance.
  virtual void layernorm_forward(Stream&, View out, View mean, View rstd, View in, View weight, View bias,
                                 std::int64_t width, float epsilon) = 0;
  virtual void layernorm_backward(Stream&, View grad_in, View grad_weight, View grad_bias, View grad_out, View in,
                                  View mean, View rstd, View weight, std::int64_t width, bool accumulate) = 0;
  virtual void rmsnorm_forward(Stream&, View out, View rstd, View in, View weight, std::int64_t width,
                               float epsilon) = 0;
  virtual void rmsnorm_backward(Stream&, View grad_in, View grad_weight, View grad_out, View in, View rstd, View weight,
                                std::int64_t width, bool accumulate) = 0;

  // --- linear ---------------------------------------------------------------------------------------------------
  // out and in are T, weight and bias are T; bias may be empty. out may also be f32 while T is bf16.
  virtual void linear_forward(Stream&, View out, View in, View weight, View bias, LinearShape) = 0;
  // grad_in[rows, inputs] = grad_out * weight
  virtual void linear_backward_input(Stream&, View grad_in, View grad_out, View weight, LinearShape) = 0;
  // grad_weight[outputs, inputs] f32 (+)= grad_out^T * in; grad_bias[outputs] f32 (+)= column sums; may be empty.
  virtual void linear_backward_weight(Stream&, View grad_weight, View grad_bias, View grad_out, View in, LinearShape,
                                      bool accumulate) = 0;

  // --- activations ------------------------------------------------------------------------------------------------
  // GELU, tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  virtual void gelu_forward(Stream&, View out, View in) = 0;
  virtual void gelu_backward(Stream&, View grad_in, View grad_out, View in) = 0;  // grad_in may be grad_out
  // in: (rows, 2 * hidden) = [gate | up]; out[rows, hidden] = silu(gate) * up
  virtual void swiglu_forward(Stream&, View out, View in, std::int64_t hidden) = 0;
  virtual void swiglu_backward(Stream&, View grad_in, View grad_out, View in, std::int64_t hidden) = 0;

  // --- attention --------------------------------------------------------------------------------------------------
  // Rotates, in place, `heads` heads of `head_dim` in each row of x, in the "half" pairing of Llama: elements i and
  // i + head_dim/2 by angle position * theta^(-2i/head_dim), position = row % length. `inverse` rotates back (gradient).
  virtual void rotary(Stream&, StridedView x, std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
                      std::int64_t length, float theta, bool inverse) = 0;
  // Causal, scaled by 1/sqrt(head_dim), tiled with an online softmax (Milakov and Gimelshein 2018; Dao et al. 2022):
  // memory for scores is one tile. log_sum_exp: (sequences, heads, length) f32, kept for backward.
  virtual void attention_forward(Stream&, View out, View log_sum_exp, View q, View k, View v, AttentionShape) = 0;
  // grad_q, grad_k, grad_v have the strides of q, k, v. Key/value gradients sum over their query heads in order.
  virtual void attention_backward(Stream&, View grad_q, View grad_k, View grad_v, View grad_out, View out,
                                  View log_sum_exp, View q, View k, View v, AttentionShape) = 0;

  // --- loss -----------------------------------------------------------------------------------------------------
  // Softmax cross-entropy over rows of `vocabulary` logits (T), fused with its gradient:
  // losses[r] f32 = log(sum exp) - logit[target]; logits become (softmax - onehot) * scale. targets: (rows) int32.
  virtual void cross_entropy(Stream&, View losses, View logits, View targets, std::int64_t vocabulary, float scale) = 0;
  // The loss alone; logits stay as they are.
  virtual void cross_entropy_forward(Stream&, View losses, View logits, View targets, std::int64_t vocabulary) = 0;

  // --- fixed-order sums (functions of the count alone, the same on every ISA) ---------------------------------------
  // out (1) f32 = sum of in f32: 16 running float64 sums over the elements i mod 16, added pairwise at the end
  // ((0+8)+(4+12))+... in halving order, rounded once to float32.
  virtual void sum(Stream&, View out, View in) = 0;
  // out: 8 bytes, a float64: the sum of squares of in f32, in the same order, each square exact in float64.
  virtual void squared_norm(Stream&, View out, View in) = 0;
  // The same for several: out is 8 bytes for each of `in`, spread over threads: one sum is one thread's work.
  virtual void squared_norms(Stream&, View out, std::span<const View> in) = 0;
  // The canonical tree over lanes: nodes[i] (n) f32 covers `node_lanes[i]` consecutive lanes from where the previous
  // one ended, 0..lanes-1 in all. out = the left-balanced binary tree's root, given those subtrees. One pass over
  // memory. out may be nodes[i]. Asserts that every node is a subtree of the tree over `lanes`.
  virtual void tree_sum(Stream&, View out, std::span<const View> nodes, std::span<const std::int64_t> node_lanes,
                        std::int64_t lanes) = 0;

  // --- update -----------------------------------------------------------------------------------------------------
  virtual void adamw(Stream&, const AdamwArguments&) = 0;
  // The same for several shards whose `published`, where there is one, have one dtype, spread over threads: a shard is one thread's work.
  virtual void adamw_many(Stream&, std::span<const AdamwArguments>) = 0;
  // The shard digest: XXH3-128 over the state in blocks of 4096 elements, each block as master bytes, then moment1
  // bytes, then moment2 bytes. digest: (16) bytes, high half then low half, each little-endian.
  virtual void state_digest(Stream&, View digest, View master, View moment1, View moment2) = 0;
};

}  // namespace kintsugi::kernels
