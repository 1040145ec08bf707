// A device that measures what its operations take, by kind: two clock readings in stream order around each.
#pragma once

#include <map>
#include <string>

#include "base/clock.hpp"
#include "kernels/device.hpp"
#include "kernels/ops.hpp"

namespace kintsugi::bench {

struct OperationTime {
  double seconds = 0;
  std::int64_t calls = 0;
};

class TimedOps final : public kernels::Ops {
 public:
  TimedOps(kernels::Ops& ops, const Clock& clock) : ops_(ops), clock_(clock) {}
  // By name. Only while no stream has work.
  std::map<std::string, OperationTime>& times() { return times_; }

  using Stream = kernels::Stream;
  using View = kernels::View;
  using I = std::int64_t;
  void fill(Stream& s, View out, float value) override {
    timed(s, "fill", [&] { ops_.fill(s, out, value); });
  }
  void copy(Stream& s, View out, View in) override {
    timed(s, "copy", [&] { ops_.copy(s, out, in); });
  }
  void convert(Stream& s, View out, View in) override {
    timed(s, "convert", [&] { ops_.convert(s, out, in); });
  }
  void add(Stream& s, View out, View a, View b) override {
    timed(s, "add", [&] { ops_.add(s, out, a, b); });
  }
  void embedding_forward(Stream& s, View out, View tokens, View table, View positions, I width, I length) override {
    timed(s, "embedding_forward", [&] { ops_.embedding_forward(s, out, tokens, table, positions, width, length); });
  }
  void embedding_backward(Stream& s, View grad_table, View grad_positions, View grad_out, View tokens, I width,
                          I length, bool accumulate) override {
    timed(s, "embedding_backward",
          [&] { ops_.embedding_backward(s, grad_table, grad_positions, grad_out, tokens, width, length, accumulate); });
  }
  void layernorm_forward(Stream& s, View out, View mean, View rstd, View in, View weight, View bias, I width,
                         float epsilon) override {
    timed(s, "layernorm_forward",
          [&] { ops_.layernorm_forward(s, out, mean, rstd, in, weight, bias, width, epsilon); });
  }
  void layernorm_backward(Stream& s, View grad_in, View grad_weight, View grad_bias, View grad_out, View in, View mean,
                          View rstd, View weight, I width, bool accumulate) override {
    timed(s, "layernorm_backward", [&] {
      ops_.layernorm_backward(s, grad_in, grad_weight, grad_bias, grad_out, in, mean, rstd, weight, width, accumulate);
    });
  }
  void rmsnorm_forward(Stream& s, View out, View rstd, View in, View weight, I width, float epsilon) override {
    timed(s, "rmsnorm_forward", [&] { ops_.rmsnorm_forward(s, out, rstd, in, weight, width, epsilon); });
  }
  void rmsnorm_backward(Stream& s, View grad_in, View grad_weight, View grad_out, View in, View rstd, View weight,
                        I width, bool accumulate) override {
    timed(s, "rmsnorm_backward",
          [&] { ops_.rmsnorm_backward(s, grad_in, grad_weight, grad_out, in, rstd, weight, width, accumulate); });
  }
  void linear_forward(Stream& s, View out, View in, View weight, View bias, kernels::LinearShape shape) override {
    timed(s, linear("linear_forward", shape), [&] { ops_.linear_forward(s, out, in, weight, bias, shape); });
  }
  void linear_backward_input(Stream& s, View grad_in, View grad_out, View weight, kernels::LinearShape shape) override {
    timed(s, linear("linear_backward_input", shape),
          [&] { ops_.linear_backward_input(s, grad_in, grad_out, weight, shape); });
  }
  void linear_backward_weight(Stream& s, View grad_weight, View grad_bias, View grad_out, View in,
                              kernels::LinearShape shape, bool accumulate) override {
    timed(s, linear("linear_backward_weight", shape),
          [&] { ops_.linear_backward_weight(s, grad_weight, grad_bias, grad_out, in, shape, accumulate); });
  }
  void gelu_forward(Stream& s, View out, View in) override {
    timed(s, "gelu_forward", [&] { ops_.gelu_forward(s, out, in); });
  }
  void gelu_backward(Stream& s, View grad_in, View grad_out, View in) override {
    timed(s, "gelu_backward", [&] { ops_.gelu_backward(s, grad_in, grad_out, in); });
  }
  void swiglu_forward(Stream& s, View out, View in, I hidden) override {
    timed(s, "swiglu_forward", [&] { ops_.swiglu_forward(s, out, in, hidden); });
  }
  void swiglu_backward(Stream& s, View grad_in, View grad_out, View in, I hidden) override {
    timed(s, "swiglu_backward", [&] { ops_.swiglu_backward(s, grad_in, grad_out, in, hidden); });
  }
  void rotary(Stream& s, kernels::StridedView x, I rows, I heads, I head_dim, I length, float theta,
              bool inverse) override {
    timed(s, "rotary", [&] { ops_.rotary(s, x, rows, heads, head_dim, length, theta, inverse); });
  }
  void attention_forward(Stream& s, View out, View log_sum_exp, View q, View k, View v,
                         kernels::AttentionShape shape) override {
    timed(s, "attention_forward", [&] { ops_.attention_forward(s, out, log_sum_exp, q, k, v, shape); });
  }
  void attention_backward(Stream& s, View grad_q, View grad_k, View grad_v, View grad_out, View out, View log_sum_exp,
                          View q, View k, View v, kernels::AttentionShape shape) override {
    timed(s, "attention_backward",
          [&] { ops_.attention_backward(s, grad_q, grad_k, grad_v, grad_out, out, log_sum_exp, q, k, v, shape); });
  }
  void cross_entropy(Stream& s, View losses, View logits, View targets, I vocabulary, float scale) override {
    timed(s, "cross_entropy", [&] { ops_.cross_entropy(s, losses, logits, targets, vocabulary, scale); });
  }
  void cross_entropy_forward(Stream& s, View losses, View logits, View targets, I vocabulary) override {
    timed(s, "cross_entropy_forward", [&] { ops_.cross_entropy_forward(s, losses, logits, targets, vocabulary); });
  }
  void sum(Stream& s, View out, View in) override {
    timed(s, "sum", [&] { ops_.sum(s, out, in); });
  }
  void squared_norms(Stream& s, View out, std::span<const View> in) override {
    timed(s, "squared_norms", [&] { ops_.squared_norms(s, out, in); });
  }
  void squared_norm(Stream& s, View out, View in) override {
    timed(s, "squared_norm", [&] { ops_.squared_norm(s, out, in); });
  }
  void tree_sum(Stream& s, View out, std::span<const View> nodes, std::span<const std::int64_t> node_lanes,
                I lanes) override {
    timed(s, "tree_sum", [&] { ops_.tree_sum(s, out, nodes, node_lanes, lanes); });
  }
  void adamw(Stream& s, const kernels::AdamwArguments& arguments) override {
    timed(s, "adamw", [&] { ops_.adamw(s, arguments); });
  }
  void adamw_many(Stream& s, std::span<const kernels::AdamwArguments> shards) override {
    timed(s, "adamw_many", [&] { ops_.adamw_many(s, shards); });
  }
  void state_digest(Stream& s, View digest, View master, View moment1, View moment2) override {
    timed(s, "state_digest", [&] { ops_.state_digest(s, digest, master, moment1, moment2); });
  }

 private:
  // "linear_forward 768x3072": inputs and outputs.
  static std::string linear(const char* name, kernels::LinearShape shape) {
    return std::string(name) + " " + std::to_string(shape.inputs) + "x" + std::to_string(shape.outputs);
  }

  template <class Operation>
  void timed(Stream& stream, const std::string& name, Operation operation) {
    OperationTime& time = times_[name];  // nodes of a map stay where they are
    stream.enqueue("begin", [this]() -> Result<void> {
      began_ = clock_.now();
      return {};
    });
    operation();
    stream.enqueue("end", [this, &time]() -> Result<void> {
      time.seconds += (clock_.now() - began_).seconds();
      ++time.calls;
      return {};
    });
  }

  kernels::Ops& ops_;
  const Clock& clock_;
  std::map<std::string, OperationTime> times_;
  Instant began_{};
};

class TimedDevice final : public kernels::Device {
 public:
  TimedDevice(kernels::Device& device, const Clock& clock) : device_(device), ops_(device.ops(), clock) {}

  const kernels::DeviceTraits& traits() const override { return device_.traits(); }
  TimedOps& ops() override { return ops_; }
  std::unique_ptr<kernels::Stream> create_stream() override { return device_.create_stream(); }
  Result<std::unique_ptr<kernels::Buffer>> allocate(std::size_t bytes) override { return device_.allocate(bytes); }
  Result<std::unique_ptr<kernels::Buffer>> map_shared(int memfd, std::size_t offset_bytes, std::size_t bytes,
                                                      bool writable) override {
    return device_.map_shared(memfd, offset_bytes, bytes, writable);
  }
  void copy_to_device(kernels::Stream& stream, kernels::View to, const void* from) override {
    device_.copy_to_device(stream, to, from);
  }
  void copy_to_host(kernels::Stream& stream, void* to, kernels::View from) override {
    device_.copy_to_host(stream, to, from);
  }
  kernels::View host_visible(std::span<const std::byte> bytes, kernels::DType dtype) override {
    return device_.host_visible(bytes, dtype);
  }
  std::byte* host_address(const kernels::View& view) override { return device_.host_address(view); }

 private:
  kernels::Device& device_;
  TimedOps ops_;
};

}  // namespace kintsugi::bench
