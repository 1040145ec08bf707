// The embedding: a row of the token table, plus a row of the position table in GPT-2 (Radford et al. 2019).
#include "engine/model/layer_program_parts.hpp"

namespace kintsugi::layers {

namespace {

class Embedding final : public LayerProgram {
 public:
  Embedding(const ModelLayout& layout, MicrobatchShape shape, kernels::Ops& ops)
      : table_(find(layout, embedding_name(layout.config()))),
        positions_(layout.config().family == ModelFamily::gpt2 ? find(layout, "transformer.wpe.weight")
                                                               : ParameterRange{}),
        width_(layout.config().width),
        shape_(shape),
        ops_(ops) {}

  std::size_t saved_bytes() const override { return 0; }
  std::size_t workspace_bytes() const override { return 0; }
  double forward_flops() const override { return 0; }
  double backward_flops() const override { return 0; }

  void forward(kernels::Stream& stream, const ForwardArguments& a) override {
    KINTSUGI_ASSERT(a.tokens.count == shape_.rows() && a.out.count == shape_.rows() * width_);
    ops_.embedding_forward(stream, a.out, a.tokens, table_.in(*a.weights), positions_.in(*a.weights), width_,
                           shape_.length);
  }

  void backward(kernels::Stream& stream, const BackwardArguments& a) override {
    KINTSUGI_ASSERT(a.tokens.count == shape_.rows() && a.grad_out.count == shape_.rows() * width_);
    ops_.embedding_backward(stream, table_.in(*a.gradients), positions_.in(*a.gradients), a.grad_out, a.tokens, width_,
                            shape_.length, a.accumulate);
  }

 private:
  ParameterRange table_, positions_;
  std::int64_t width_;
  MicrobatchShape shape_;
  kernels::Ops& ops_;
};

}  // namespace

std::unique_ptr<LayerProgram> make_embedding(const ModelLayout& layout, MicrobatchShape shape, kernels::Ops& ops) {
  return std::make_unique<Embedding>(layout, shape, ops);
}

}  // namespace kintsugi::layers
