#include "engine/model/generator.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.hpp"
#include "engine/model/layer_program_parts.hpp"

namespace kintsugi {

namespace {

// Shorter windows would save little and cost a set of programs each.
constexpr std::int64_t kShortestWindow = 32;

}  // namespace

std::int32_t sample_token(std::span<const float> logits, double temperature, std::int64_t top_k, double random) {
  KINTSUGI_ASSERT(!logits.empty() && temperature >= 0.0 && random >= 0.0 && random < 1.0);
  KINTSUGI_ASSERT(std::ranges::none_of(logits, [](float x) { return std::isnan(x); }));
  if (temperature == 0.0) {
    return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
  }
  const std::size_t kept = top_k > 0 ? std::min(logits.size(), static_cast<std::size_t>(top_k)) : logits.size();
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      return logits[static_cast<std::size_t>(a)] != logits[static_cast<std::size_t>(b)]
                                 ? logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)]
                                 : a < b;
                    });
  order.resize(kept);
  const double largest = logits[static_cast<std::size_t>(order.front())];
  std::vector<double> cumulative(kept);
  double total = 0.0;
  for (std::size_t i = 0; i < kept; ++i) {
    total += std::exp((logits[static_cast<std::size_t>(order[i])] - largest) / temperature);
    cumulative[i] = total;
  }
  const auto drawn = std::ranges::upper_bound(cumulative, random * total);
  return order[std::min(kept - 1, static_cast<std::size_t>(drawn - cumulative.begin()))];
}

Generator::Generator(kernels::Device& device, const ModelLayout& layout, Precision precision, GroupViews weights)
    : device_(&device),
      layout_(layout),
      precision_(precision),
      weights_(std::move(weights)),
      head_(layout, {1, 1}, precision, device.ops()) {}

Generator::Window Generator::make_window(std::int64_t length) const {
  Window window{.layers = {}, .length = length};
  for (std::uint32_t i = 0; i + 1 < layout_.layer_count(); ++i) {
    window.layers.push_back(make_layer_program(layout_, LayerId{i}, {1, length}, precision_, device_->ops()));
  }
  return window;
}

Result<Generator> Generator::create(kernels::Device& device, const ModelLayout& layout, Precision precision,
                                    GroupViews weights) {
  const ModelConfig& config = layout.config();
  Generator g(device, layout, precision, std::move(weights));
  Window window = g.make_window(config.context);
  std::size_t saved_bytes = 0;
  std::size_t workspace_bytes = g.head_.workspace_bytes();
  for (const auto& layer : window.layers) {
    saved_bytes = std::max(saved_bytes, layer->saved_bytes());
    workspace_bytes = std::max(workspace_bytes, layer->workspace_bytes());
  }
  layers::MemoryMap map;
  const kernels::DType t = layers::activation_dtype(precision);
  const layers::Slot tokens = map.add(kernels::DType::int32, config.context);
  const layers::Slot even = map.add(t, config.context * config.width);
  const layers::Slot odd = map.add(t, config.context * config.width);
  const layers::Slot saved = map.add(kernels::DType::byte, static_cast<std::int64_t>(saved_bytes));
  const layers::Slot workspace = map.add(kernels::DType::byte, static_cast<std::int64_t>(workspace_bytes));
  const layers::Slot logits = map.add(kernels::DType::float32, config.vocabulary);
  KINTSUGI_TRY_ASSIGN(g.memory_, device.allocate(map.bytes()));
  const kernels::View memory = g.memory_->view();
  g.tokens_ = tokens.in(memory);
  g.activations_[0] = even.in(memory);
  g.activations_[1] = odd.in(memory);
  g.saved_ = saved.in(memory);
  g.workspace_ = workspace.in(memory);
  g.device_logits_ = logits.in(memory);
  g.logits_.resize(static_cast<std::size_t>(config.vocabulary));
  g.windows_.emplace(config.context, std::move(window));
  return g;
}

Generator::Window& Generator::window_for(std::int64_t tokens) {
  std::int64_t length = kShortestWindow;
  while (length < tokens) length *= 2;
  length = std::min(length, layout_.config().context);
  const auto found = windows_.find(length);
  return found != windows_.end() ? found->second : windows_.emplace(length, make_window(length)).first->second;
}

Result<void> Generator::next_logits(kernels::Stream& stream, std::span<const std::int32_t> text) {
  const std::int64_t width = layout_.config().width;
  const std::int64_t count = std::min(static_cast<std::int64_t>(text.size()), layout_.config().context);
  Window& window = window_for(count);
  std::vector<std::int32_t> padded(static_cast<std::size_t>(window.length), 0);
  std::ranges::copy(text.last(static_cast<std::size_t>(count)), padded.begin());
  const kernels::View tokens = tokens_.slice(0, window.length);
  device_->copy_to_device(stream, tokens, padded.data());
  kernels::View in;
  for (std::size_t i = 0; i < window.layers.size(); ++i) {
    const kernels::View out = activations_[i % 2].slice(0, window.length * width);
    window.layers[i]->forward(
        stream,
        {.weights = &weights_, .tokens = tokens, .in = in, .out = out, .saved = saved_, .workspace = workspace_});
    in = out;
  }
  head_.logits(stream, weights_, in.slice((count - 1) * width, width), 0, workspace_, device_logits_);
  device_->copy_to_host(stream, logits_.data(), device_logits_);
  return stream.synchronize(kNoDeadline);
}

Result<void> Generator::generate(kernels::Stream& stream, std::span<const std::int32_t> prompt, std::int64_t count,
                                 const SamplingOptions& options, const std::function<bool(std::int32_t)>& on_token) {
  KINTSUGI_ASSERT_MSG(!prompt.empty(), "generation starts from at least one token");
  std::vector<std::int32_t> text(prompt.begin(), prompt.end());
  for (std::int64_t i = 0; i < count; ++i) {
    KINTSUGI_TRY(next_logits(stream, text));
    const double random = unit_interval(philox_u64(philox_key(options.seed), text.size(), 0));
    text.push_back(sample_token(logits_, options.temperature, options.top_k, random));
    if (!on_token(text.back())) break;
  }
  return {};
}

}  // namespace kintsugi
