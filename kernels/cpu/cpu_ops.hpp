// kernels::Ops on the CPU: asserts shapes, then enqueues one closure over raw pointers (kernels/cpu/functions.hpp).
#pragma once

#include "kernels/ops.hpp"

namespace kintsugi::kernels::cpu {

// Where the executor finds what a DevicePtr names: on the CPU device at that address, on the fake one elsewhere.
class AddressSpace {
 public:
  virtual ~AddressSpace() = default;
  virtual std::byte* resolve(const View& view) const = 0;
};

// Streams given to it are CpuStreams.
class CpuOps final : public Ops {
 public:
  explicit CpuOps(const AddressSpace& addresses) : addresses_(&addresses) {}

  void fill(Stream&, View out, float value) override;
  void copy(Stream&, View out, View in) override;
  void convert(Stream&, View out, View in) override;
  void add(Stream&, View out, View a, View b) override;

  void embedding_forward(Stream&, View out, View tokens, View table, View positions, std::int64_t width,
                         std::int64_t length) override;
  void embedding_backward(Stream&, View grad_table, View grad_positions, View grad_out, View tokens, std::int64_t width,
                          std::int64_t length, bool accumulate) override;

  void layernorm_forward(Stream&, View out, View mean, View rstd, View in, View weight, View bias, std::int64_t width,
                         float epsilon) override;
  void layernorm_backward(Stream&, View grad_in, View grad_weight, View grad_bias, View grad_out, View in, View mean,
                          View rstd, View weight, std::int64_t width, bool accumulate) override;
  void rmsnorm_forward(Stream&, View out, View rstd, View in, View weight, std::int64_t width, float epsilon) override;
  void rmsnorm_backward(Stream&, View grad_in, View grad_weight, View grad_out, View in, View rstd, View weight,
                        std::int64_t width, bool accumulate) override;

  void linear_forward(Stream&, View out, View in, View weight, View bias, LinearShape) override;
  void linear_backward_input(Stream&, View grad_in, View grad_out, View weight, LinearShape) override;
  void linear_backward_weight(Stream&, View grad_weight, View grad_bias, View grad_out, View in, LinearShape,
                              bool accumulate) override;

  void gelu_forward(Stream&, View out, View in) override;
  void gelu_backward(Stream&, View grad_in, View grad_out, View in) override;
  void swiglu_forward(Stream&, View out, View in, std::int64_t hidden) override;
  void swiglu_backward(Stream&, View grad_in, View grad_out, View in, std::int64_t hidden) override;

  void rotary(Stream&, StridedView x, std::int64_t rows, std::int64_t heads, std::int64_t head_dim, std::int64_t length,
              float theta, bool inverse) override;
  void attention_forward(Stream&, View out, View log_sum_exp, View q, View k, View v, AttentionShape) override;
  void attention_backward(Stream&, View grad_q, View grad_k, View grad_v, View grad_out, View out, View log_sum_exp,
                          View q, View k, View v, AttentionShape) override;

  void cross_entropy(Stream&, View losses, View logits, View targets, std::int64_t vocabulary, float scale) override;
  void cross_entropy_forward(Stream&, View losses, View logits, View targets, std::int64_t vocabulary) override;

  void sum(Stream&, View out, View in) override;
  void squared_norm(Stream&, View out, View in) override;
  void squared_norms(Stream&, View out, std::span<const View> in) override;
  void tree_sum(Stream&, View out, std::span<const View> nodes, std::span<const std::int64_t> node_lanes,
                std::int64_t lanes) override;

  void adamw(Stream&, const AdamwArguments&) override;
  void adamw_many(Stream&, std::span<const AdamwArguments>) override;
  void state_digest(Stream&, View digest, View master, View moment1, View moment2) override;

 private:
  // The first element of `view` as T, whose dtype it must have; nullptr for an empty view.
  template <class T>
  T* at(const View& view) const;
  template <class T>
  void enqueue_adamw(Stream& stream, std::span<const AdamwArguments> shards);

  const AddressSpace* addresses_;
};

}  // namespace kintsugi::kernels::cpu
