// Text from a model: the next token is drawn from the softmax of the last logits, over and over.
//
// The whole window is computed again for each token; there is no cache of keys and values. The window is padded to a
// power of two (at most the context), so that short texts are cheap; what follows the last token is never seen through
// the causal mask. Past the context the window slides.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "engine/model/layer_program.hpp"

namespace kintsugi {

struct SamplingOptions {
  double temperature = 1.0;  // 0: the likeliest token
  std::int64_t top_k = 0;    // only the top_k likeliest tokens are drawn; 0: all
  std::uint64_t seed = 0;    // token i of the text is drawn with Philox(seed, i)
};

// The token that `random`, in [0, 1), draws from the softmax of logits / temperature over the top_k likeliest. Equal
// logits: the lower token first. A NaN is a bug.
std::int32_t sample_token(std::span<const float> logits, double temperature, std::int64_t top_k, double random);

class Generator {
 public:
  // `weights`: (count) T for every group of the layout; they and the device must outlive the generator.
  // Error{tell_user} when the device's memory is short.
  static Result<Generator> create(kernels::Device& device, const ModelLayout& layout, Precision precision,
                                  GroupViews weights);

  // Appends `count` tokens to `prompt` (not empty, each below the vocabulary) and calls `on_token` with each, on the
  // calling thread. It ends early when `on_token` returns false, and with the stream's error.
  Result<void> generate(kernels::Stream& stream, std::span<const std::int32_t> prompt, std::int64_t count,
                        const SamplingOptions& options, const std::function<bool(std::int32_t)>& on_token);

 private:
  // Everything up to the head for one window of `length` tokens.
  struct Window {
    std::vector<std::unique_ptr<LayerProgram>> layers;
    std::int64_t length = 0;
  };

  Generator(kernels::Device& device, const ModelLayout& layout, Precision precision, GroupViews weights);
  Window make_window(std::int64_t length) const;
  Window& window_for(std::int64_t tokens);
  // logits_ of the token after text.back().
  Result<void> next_logits(kernels::Stream& stream, std::span<const std::int32_t> text);

  kernels::Device* device_;
  ModelLayout layout_;
  Precision precision_;
  GroupViews weights_;
  HeadInference head_;                       // of one row
  std::map<std::int64_t, Window> windows_;   // by length
  std::unique_ptr<kernels::Buffer> memory_;  // the places below, for a window of the whole context
  kernels::View tokens_;                     // (context) int32
  kernels::View activations_[2];             // (context, width) T, taking turns
  kernels::View saved_, workspace_;          // bytes
  kernels::View device_logits_;              // (vocabulary) f32
  std::vector<float> logits_;                // (vocabulary), on the host
};

}  // namespace kintsugi
