// A pre-norm transformer block: x + attention(norm(x)), then y + feed_forward(norm(y)).
//
// GPT-2 (Radford et al. 2019): layer norm, biases, GELU. Llama (Touvron et al. 2023): RMS norm, rotary positions (Su et
// al. 2021), grouped key/value heads (Ainslie et al. 2023), SwiGLU (Shazeer 2020). Both are the same sequence of calls;
// q, k and v are one product, and so are gate and up.
//
// Kept for backward: what only a matrix product or attention could bring back (qkv, attention's output and log-sum-exp,
// the middle of the residual stream, the feed-forward part before its activation). Norms and activations are computed
// again, at about one part in a hundred of a step for a third of the memory.
#include "engine/model/layer_program_parts.hpp"

namespace kintsugi::layers {

namespace {

using kernels::View;

// A block's matrices under the family's names.
struct Names {
  std::string norm1, qkv_first, qkv_last, projection, norm2, up_first, up_last, down;

  static Names of(const ModelConfig& config, std::int64_t block) {
    const std::string p = block_prefix(config, block);
    if (config.family == ModelFamily::gpt2) {
      return {p + "ln_1", p + "attn.c_attn", p + "attn.c_attn", p + "attn.c_proj",
              p + "ln_2", p + "mlp.c_fc",    p + "mlp.c_fc",    p + "mlp.c_proj"};
    }
    return {p + "input_layernorm",          p + "self_attn.q_proj", p + "self_attn.v_proj", p + "self_attn.o_proj",
            p + "post_attention_layernorm", p + "mlp.gate_proj",    p + "mlp.up_proj",      p + "mlp.down_proj"};
  }
};

class Block final : public LayerProgram {
 public:
  Block(const ModelLayout& layout, const Names& names, MicrobatchShape shape, Precision precision, kernels::Ops& ops);

  std::size_t saved_bytes() const override { return saved_.bytes(); }
  std::size_t workspace_bytes() const override { return workspace_.bytes(); }
  double forward_flops() const override { return product_flops() + attention_flops(); }
  // Scores that attention's backward computes again are not counted (Chowdhery et al. 2022, appendix B).
  double backward_flops() const override { return 2.0 * forward_flops(); }
  void forward(kernels::Stream& stream, const ForwardArguments& arguments) override;
  void backward(kernels::Stream& stream, const BackwardArguments& arguments) override;

 private:
  // q, k and v in one (rows, (heads + 2 kv_heads) * head_dim) buffer.
  struct Heads {
    View q, k, v;
  };
  Heads split(const View& qkv) const;
  void rotate(const Run& run, const View& qkv, bool inverse) const;
  void activate(const Run& run, const View& out, const View& in) const;
  void feed_forward_backward(const Run& run, const BackwardArguments& a) const;
  void attention_backward(const Run& run, const BackwardArguments& a) const;
  double product_flops() const { return qkv_.flops() + projection_.flops() + up_.flops() + down_.flops(); }
  double attention_flops() const;

  ModelConfig config_;
  bool llama_;
  MicrobatchShape shape_;
  kernels::Ops& ops_;
  std::int64_t qkv_width_;
  Norm norm1_, norm2_;
  Linear qkv_, projection_, up_, down_;
  kernels::AttentionShape attention_;

  // T unless said otherwise.
  MemoryMap saved_;
  Slot saved_qkv_;       // (rows, qkv_width), rotated
  Slot saved_attended_;  // (rows, width)
  Slot saved_lse_;       // (sequences, heads, length) f32
  Slot saved_middle_;    // (rows, width): the residual stream between the two halves
  Slot saved_up_;        // (rows, hidden), or (rows, 2 * hidden) = [gate | up]

  MemoryMap workspace_;
  Norm::Statistics statistics_;
  Slot normed_, grad_normed_;  // (rows, width)
  Slot activated_;             // (rows, hidden); in backward then its gradient
  Slot grad_up_;               // as saved_up_; GELU's lies in `activated_`
  Slot grad_qkv_;              // as saved_qkv_, in the place of activated_
};

// GPT-2's linear layers have biases, Llama's have none.
Linear linear(const ModelLayout& layout, const std::string& first, const std::string& last, MicrobatchShape shape,
              std::int64_t inputs, std::int64_t outputs) {
  const bool bias = layout.config().family == ModelFamily::gpt2;
  return {find(layout, first + ".weight", last + ".weight"),
          bias ? find(layout, first + ".bias") : ParameterRange{},
          {shape.rows(), inputs, outputs}};
}

Block::Block(const ModelLayout& layout, const Names& names, MicrobatchShape shape, Precision precision,
             kernels::Ops& ops)
    : config_(layout.config()),
      llama_(config_.family == ModelFamily::llama),
      shape_(shape),
      ops_(ops),
      qkv_width_((config_.heads + 2 * config_.kv_heads) * config_.head_dim()),
      norm1_(layout, names.norm1),
      norm2_(layout, names.norm2),
      qkv_(linear(layout, names.qkv_first, names.qkv_last, shape, config_.width, qkv_width_)),
      projection_(linear(layout, names.projection, names.projection, shape, config_.width, config_.width)),
      up_(linear(layout, names.up_first, names.up_last, shape, config_.width, (llama_ ? 2 : 1) * config_.hidden)),
      down_(linear(layout, names.down, names.down, shape, config_.hidden, config_.width)),
      attention_{.sequences = shape.sequences,
                 .length = shape.length,
                 .heads = config_.heads,
                 .kv_heads = config_.kv_heads,
                 .head_dim = config_.head_dim(),
                 .q_stride = qkv_width_,
                 .kv_stride = qkv_width_,
                 .out_stride = config_.width} {
  const kernels::DType t = activation_dtype(precision);
  const std::int64_t rows = shape.rows();
  const std::int64_t up_width = (llama_ ? 2 : 1) * config_.hidden;
  saved_qkv_ = saved_.add(t, rows * qkv_width_);
  saved_attended_ = saved_.add(t, rows * config_.width);
  saved_lse_ = saved_.add(kernels::DType::float32, rows * config_.heads);
  saved_middle_ = saved_.add(t, rows * config_.width);
  saved_up_ = saved_.add(t, rows * up_width);

  statistics_ = Norm::add_statistics(workspace_, rows);
  normed_ = workspace_.add(t, rows * config_.width);
  grad_normed_ = workspace_.add(t, rows * config_.width);
  const std::size_t halves = workspace_.mark();
  activated_ = workspace_.add(t, rows * config_.hidden);
  grad_up_ = llama_ ? workspace_.add(t, rows * up_width) : activated_;
  workspace_.rewind(halves);
  grad_qkv_ = workspace_.add(t, rows * qkv_width_);
}

Block::Heads Block::split(const View& qkv) const {
  const std::int64_t k = config_.heads * config_.head_dim();
  const std::int64_t v = k + config_.kv_heads * config_.head_dim();
  return {qkv, qkv.slice(k, qkv.count - k), qkv.slice(v, qkv.count - v)};
}

// Query and key heads lie side by side and turn together.
void Block::rotate(const Run& run, const View& qkv, bool inverse) const {
  run.ops.rotary(run.stream, {qkv, qkv_width_}, shape_.rows(), config_.heads + config_.kv_heads, config_.head_dim(),
                 shape_.length, config_.rope_theta, inverse);
}

void Block::activate(const Run& run, const View& out, const View& in) const {
  if (llama_)
    run.ops.swiglu_forward(run.stream, out, in, config_.hidden);
  else
    run.ops.gelu_forward(run.stream, out, in);
}

// Only positions up to its own are seen by a token: length * (length + 1) / 2 pairs a head, two products each.
double Block::attention_flops() const {
  const double pairs = 0.5 * static_cast<double>(shape_.length) * static_cast<double>(shape_.length + 1);
  return 4.0 * static_cast<double>(shape_.sequences * config_.heads * config_.head_dim()) * pairs;
}

void Block::forward(kernels::Stream& stream, const ForwardArguments& a) {
  KINTSUGI_ASSERT(a.in.count == shape_.rows() * config_.width && a.out.count == a.in.count);
  const Run run{ops_, stream, *a.weights};
  const View normed = normed_.in(a.workspace);
  const View qkv = saved_qkv_.in(a.saved);
  const View attended = saved_attended_.in(a.saved);
  const View middle = saved_middle_.in(a.saved);
  norm1_.forward(run, normed, a.in, statistics_, a.workspace);
  qkv_.forward(run, qkv, normed);
  if (llama_) rotate(run, qkv, false);
  const Heads heads = split(qkv);
  ops_.attention_forward(stream, attended, saved_lse_.in(a.saved), heads.q, heads.k, heads.v, attention_);
  projection_.forward(run, middle, attended);
  ops_.add(stream, middle, middle, a.in);

  const View up = saved_up_.in(a.saved);
  const View activated = activated_.in(a.workspace);
  norm2_.forward(run, normed, middle, statistics_, a.workspace);
  up_.forward(run, up, normed);
  activate(run, activated, up);
  down_.forward(run, a.out, activated);
  ops_.add(stream, a.out, a.out, middle);
}

void Block::backward(kernels::Stream& stream, const BackwardArguments& a) {
  KINTSUGI_ASSERT(a.in.count == shape_.rows() * config_.width && a.grad_out.count == a.in.count);
  KINTSUGI_ASSERT(a.grad_in.count == a.in.count && a.grad_in.data != a.grad_out.data);
  const Run run{ops_, stream, *a.weights, a.gradients, a.accumulate};
  feed_forward_backward(run, a);
  attention_backward(run, a);
}

// grad_out becomes the gradient of the middle; grad_in is scratch until the attention half.
void Block::feed_forward_backward(const Run& run, const BackwardArguments& a) const {
  const View up = saved_up_.in(a.saved);
  const View middle = saved_middle_.in(a.saved);
  const View activated = activated_.in(a.workspace);
  activate(run, activated, up);
  down_.backward_weight(run, a.grad_out, activated);
  down_.backward_input(run, activated, a.grad_out);
  const View grad_up = grad_up_.in(a.workspace);
  if (llama_)
    run.ops.swiglu_backward(run.stream, grad_up, activated, up, config_.hidden);
  else
    run.ops.gelu_backward(run.stream, grad_up, activated, up);

  const View normed = normed_.in(a.workspace);
  const View grad_normed = grad_normed_.in(a.workspace);
  norm2_.forward(run, normed, middle, statistics_, a.workspace);
  up_.backward_weight(run, grad_up, normed);
  up_.backward_input(run, grad_normed, grad_up);
  norm2_.backward(run, a.grad_in, grad_normed, middle, statistics_, a.workspace);
  run.ops.add(run.stream, a.grad_out, a.grad_out, a.grad_in);
}

void Block::attention_backward(const Run& run, const BackwardArguments& a) const {
  const View attended = saved_attended_.in(a.saved);
  const View grad_qkv = grad_qkv_.in(a.workspace);
  const View grad_attended = grad_normed_.in(a.workspace);
  projection_.backward_weight(run, a.grad_out, attended);
  projection_.backward_input(run, grad_attended, a.grad_out);
  const Heads heads = split(saved_qkv_.in(a.saved));
  const Heads grad = split(grad_qkv);
  run.ops.attention_backward(run.stream, grad.q, grad.k, grad.v, grad_attended, attended, saved_lse_.in(a.saved),
                             heads.q, heads.k, heads.v, attention_);
  if (llama_) rotate(run, grad_qkv, true);

  const View normed = normed_.in(a.workspace);
  const View grad_normed = grad_normed_.in(a.workspace);
  norm1_.forward(run, normed, a.in, statistics_, a.workspace);
  qkv_.backward_weight(run, grad_qkv, normed);
  qkv_.backward_input(run, grad_normed, grad_qkv);
  norm1_.backward(run, a.grad_in, grad_normed, a.in, statistics_, a.workspace);
  run.ops.add(run.stream, a.grad_in, a.grad_in, a.grad_out);
}

}  // namespace

std::unique_ptr<LayerProgram> make_block(const ModelLayout& layout, std::int64_t block, MicrobatchShape shape,
                                         Precision precision, kernels::Ops& ops) {
  return std::make_unique<Block>(layout, Names::of(layout.config(), block), shape, precision, ops);
}

}  // namespace kintsugi::layers
