#include "engine/model/layer_program.hpp"

#include "engine/model/layer_program_parts.hpp"

namespace kintsugi {

std::unique_ptr<LayerProgram> make_layer_program(const ModelLayout& layout, LayerId layer, MicrobatchShape shape,
                                                 Precision precision, kernels::Ops& ops) {
  KINTSUGI_ASSERT(shape.sequences > 0 && shape.length > 0 && shape.length <= layout.config().context);
  switch (layout.kind(layer)) {
    case LayerKind::embedding: return layers::make_embedding(layout, shape, ops);
    case LayerKind::block:
      return layers::make_block(layout, static_cast<std::int64_t>(layer.value) - 1, shape, precision, ops);
    case LayerKind::head: return layers::make_head(layout, shape, precision, ops);
  }
  KINTSUGI_UNREACHABLE();
}

namespace layers {

ParameterRange find(const ModelLayout& layout, std::string_view name) {
  return find(layout, name, name);
}

ParameterRange find(const ModelLayout& layout, std::string_view first, std::string_view last) {
  const Parameter& from = layout.parameter(first);
  const Parameter& to = layout.parameter(last);
  KINTSUGI_ASSERT(from.group == to.group && from.offset <= to.offset);
  return {from.group, from.offset, to.offset + to.count() - from.offset};
}

std::string embedding_name(const ModelConfig& config) {
  return config.family == ModelFamily::gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight";
}

std::string output_name(const ModelConfig& config) {
  return config.tied ? embedding_name(config) : "lm_head.weight";
}

std::string final_norm_name(const ModelConfig& config) {
  return config.family == ModelFamily::gpt2 ? "transformer.ln_f" : "model.norm";
}

std::string block_prefix(const ModelConfig& config, std::int64_t block) {
  return (config.family == ModelFamily::gpt2 ? "transformer.h." : "model.layers.") + std::to_string(block) + ".";
}

Linear::Linear(ParameterRange weight, ParameterRange bias, kernels::LinearShape shape)
    : weight_(weight), bias_(bias), shape_(shape) {
  KINTSUGI_ASSERT(weight.count == shape.inputs * shape.outputs);
  KINTSUGI_ASSERT(bias.count == 0 || bias.count == shape.outputs);
}

double Linear::flops() const {
  return 2.0 * static_cast<double>(shape_.rows) * static_cast<double>(shape_.inputs) *
         static_cast<double>(shape_.outputs);
}

void Linear::forward(const Run& run, const kernels::View& out, const kernels::View& in) const {
  run.ops.linear_forward(run.stream, out, in, weight_.in(run.weights), bias_.in(run.weights), shape_);
}

void Linear::backward_weight(const Run& run, const kernels::View& grad_out, const kernels::View& in) const {
  run.ops.linear_backward_weight(run.stream, weight_.in(*run.gradients), bias_.in(*run.gradients), grad_out, in, shape_,
                                 run.accumulate);
}

void Linear::backward_input(const Run& run, const kernels::View& grad_in, const kernels::View& grad_out) const {
  run.ops.linear_backward_input(run.stream, grad_in, grad_out, weight_.in(run.weights), shape_);
}

Norm::Norm(const ModelLayout& layout, const std::string& name)
    : rms_(layout.config().family == ModelFamily::llama),
      weight_(find(layout, name + ".weight")),
      bias_(rms_ ? ParameterRange{} : find(layout, name + ".bias")),
      width_(layout.config().width),
      epsilon_(layout.config().norm_epsilon) {}

Norm::Statistics Norm::add_statistics(MemoryMap& memory, std::int64_t rows) {
  const Slot mean = memory.add(kernels::DType::float32, rows);
  return {mean, memory.add(kernels::DType::float32, rows)};
}

void Norm::forward(const Run& run, const kernels::View& out, const kernels::View& in, const Statistics& statistics,
                   const kernels::View& workspace) const {
  const kernels::View weight = weight_.in(run.weights);
  const kernels::View rstd = statistics.rstd.in(workspace);
  if (rms_) {
    run.ops.rmsnorm_forward(run.stream, out, rstd, in, weight, width_, epsilon_);
  } else {
    run.ops.layernorm_forward(run.stream, out, statistics.mean.in(workspace), rstd, in, weight, bias_.in(run.weights),
                              width_, epsilon_);
  }
}

void Norm::backward(const Run& run, const kernels::View& grad_in, const kernels::View& grad_out,
                    const kernels::View& in, const Statistics& statistics, const kernels::View& workspace) const {
  const kernels::View weight = weight_.in(run.weights);
  const kernels::View grad_weight = weight_.in(*run.gradients);
  const kernels::View rstd = statistics.rstd.in(workspace);
  if (rms_) {
    run.ops.rmsnorm_backward(run.stream, grad_in, grad_weight, grad_out, in, rstd, weight, width_, run.accumulate);
  } else {
    run.ops.layernorm_backward(run.stream, grad_in, grad_weight, bias_.in(*run.gradients), grad_out, in,
                               statistics.mean.in(workspace), rstd, weight, width_, run.accumulate);
  }
}

}  // namespace layers

}  // namespace kintsugi
