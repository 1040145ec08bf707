// The head: final norm, output projection, softmax cross-entropy. Logits of a chunk of rows are computed, turned into
// their gradient where they lie, and used up before the next chunk: (rows, vocabulary) never exists at once.
#include "engine/model/layer_program_parts.hpp"

namespace kintsugi::layers {

namespace {

using kernels::DType;
using kernels::View;

// Calls body(first row, rows) for each chunk, in order.
template <class Body>
void for_each_chunk(std::int64_t rows, std::int64_t chunk_rows, Body body) {
  for (std::int64_t first = 0; first < rows; first += chunk_rows) body(first, std::min(chunk_rows, rows - first));
}

Linear output_projection(const ModelLayout& layout, std::int64_t rows) {
  const ModelConfig& c = layout.config();
  return {find(layout, output_name(c)), {}, {rows, c.width, c.vocabulary}};
}

class Head final : public LayerProgram {
 public:
  Head(const ModelLayout& layout, MicrobatchShape shape, Precision precision, kernels::Ops& ops)
      : layout_(layout),
        shape_(shape),
        ops_(ops),
        chunk_rows_(head_chunk_rows(shape.rows(), layout.config().vocabulary)),
        norm_(layout, final_norm_name(layout.config())) {
    const DType t = activation_dtype(precision);
    const std::int64_t width = layout.config().width;
    statistics_ = Norm::add_statistics(workspace_, shape.rows());
    losses_ = workspace_.add(DType::float32, shape.rows());
    normed_ = workspace_.add(t, shape.rows() * width);
    grad_normed_ = workspace_.add(t, shape.rows() * width);
    logits_ = workspace_.add(t, chunk_rows_ * layout.config().vocabulary);
  }

  std::size_t saved_bytes() const override { return 0; }
  std::size_t workspace_bytes() const override { return workspace_.bytes(); }
  double forward_flops() const override { return 0; }
  double backward_flops() const override { return 3.0 * output_projection(layout_, shape_.rows()).flops(); }

  void forward(kernels::Stream&, const ForwardArguments&) override {}

  void backward(kernels::Stream& stream, const BackwardArguments& a) override {
    const std::int64_t width = layout_.config().width;
    const std::int64_t vocabulary = layout_.config().vocabulary;
    KINTSUGI_ASSERT(a.in.count == shape_.rows() * width && a.targets.count == shape_.rows());
    Run run{ops_, stream, *a.weights, a.gradients, a.accumulate};
    const View normed = normed_.in(a.workspace);
    const View grad_normed = grad_normed_.in(a.workspace);
    const View losses = losses_.in(a.workspace);
    norm_.forward(run, normed, a.in, statistics_, a.workspace);
    for_each_chunk(shape_.rows(), chunk_rows_, [&](std::int64_t first, std::int64_t rows) {
      const Linear output = output_projection(layout_, rows);
      const View in = normed.slice(first * width, rows * width);
      const View logits = logits_.in(a.workspace).slice(0, rows * vocabulary);
      output.forward(run, logits, in);
      ops_.cross_entropy(stream, losses.slice(first, rows), logits, a.targets.slice(first, rows), vocabulary,
                         a.loss_scale);
      output.backward_weight(run, logits, in);
      output.backward_input(run, grad_normed.slice(first * width, rows * width), logits);
      run.accumulate = true;
    });
    run.accumulate = a.accumulate;
    ops_.sum(stream, a.loss, losses);
    norm_.backward(run, a.grad_in, grad_normed, a.in, statistics_, a.workspace);
  }

 private:
  ModelLayout layout_;
  MicrobatchShape shape_;
  kernels::Ops& ops_;
  std::int64_t chunk_rows_;
  Norm norm_;

  MemoryMap workspace_;
  Norm::Statistics statistics_;
  Slot losses_;                // (rows) f32
  Slot normed_, grad_normed_;  // (rows, width) T
  Slot logits_;                // (chunk rows, vocabulary) T
};

// The workspace of HeadInference: a function of its shape, so computed where it is needed.
struct InferenceMemory {
  MemoryMap map;
  Norm::Statistics statistics;
  Slot losses, normed, logits;

  InferenceMemory(const ModelConfig& config, MicrobatchShape shape, Precision precision) {
    const DType t = activation_dtype(precision);
    statistics = Norm::add_statistics(map, shape.rows());
    losses = map.add(DType::float32, shape.rows());
    normed = map.add(t, shape.rows() * config.width);
    logits = map.add(t, head_chunk_rows(shape.rows(), config.vocabulary) * config.vocabulary);
  }
};

}  // namespace

std::int64_t head_chunk_rows(std::int64_t rows, std::int64_t vocabulary) {
  constexpr std::int64_t kLogits = std::int64_t{1} << 25;
  constexpr std::int64_t kRowTile = 64;
  const std::int64_t most = std::max(kRowTile, kLogits / vocabulary / kRowTile * kRowTile);
  const std::int64_t chunks = ceil_div(rows, most);
  return std::min(rows, ceil_div(ceil_div(rows, chunks), kRowTile) * kRowTile);
}

std::unique_ptr<LayerProgram> make_head(const ModelLayout& layout, MicrobatchShape shape, Precision precision,
                                        kernels::Ops& ops) {
  return std::make_unique<Head>(layout, shape, precision, ops);
}

}  // namespace kintsugi::layers

namespace kintsugi {

using kernels::View;

HeadInference::HeadInference(const ModelLayout& layout, MicrobatchShape shape, Precision precision, kernels::Ops& ops)
    : layout_(layout), shape_(shape), precision_(precision), ops_(&ops) {}

std::size_t HeadInference::workspace_bytes() const {
  return layers::InferenceMemory(layout_.config(), shape_, precision_).map.bytes();
}

void HeadInference::loss(kernels::Stream& stream, const GroupViews& weights, View in, View targets, View workspace,
                         View loss) {
  const ModelConfig& config = layout_.config();
  KINTSUGI_ASSERT(in.count == shape_.rows() * config.width && targets.count == shape_.rows());
  const layers::InferenceMemory memory(config, shape_, precision_);
  const layers::Run run{*ops_, stream, weights};
  const View normed = memory.normed.in(workspace);
  const View losses = memory.losses.in(workspace);
  layers::Norm(layout_, layers::final_norm_name(config)).forward(run, normed, in, memory.statistics, workspace);
  layers::for_each_chunk(shape_.rows(), layers::head_chunk_rows(shape_.rows(), config.vocabulary),
                         [&](std::int64_t first, std::int64_t rows) {
                           const View logits = memory.logits.in(workspace).slice(0, rows * config.vocabulary);
                           layers::output_projection(layout_, rows)
                               .forward(run, logits, normed.slice(first * config.width, rows * config.width));
                           ops_->cross_entropy_forward(stream, losses.slice(first, rows), logits,
                                                       targets.slice(first, rows), config.vocabulary);
                         });
  ops_->sum(stream, loss, losses);
}

void HeadInference::logits(kernels::Stream& stream, const GroupViews& weights, View in, std::int64_t row,
                           View workspace, View logits) {
  const ModelConfig& config = layout_.config();
  KINTSUGI_ASSERT(row >= 0 && row < shape_.rows() && logits.count == config.vocabulary);
  layers::InferenceMemory memory(config, {1, 1}, precision_);
  const layers::Run run{*ops_, stream, weights};
  const View normed = memory.normed.in(workspace);
  layers::Norm(layout_, layers::final_norm_name(config))
      .forward(run, normed, in.slice(row * config.width, config.width), memory.statistics, workspace);
  layers::output_projection(layout_, 1).forward(run, logits, normed);
}

}  // namespace kintsugi
