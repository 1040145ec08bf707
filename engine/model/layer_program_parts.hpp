// What layer programs are made of: fixed places in `saved` and `workspace`, references into groups, linear layers and
// norms. Only engine/model/*_layer.cpp and layer_program.cpp include this.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "base/units.hpp"
#include "engine/model/layer_program.hpp"

namespace kintsugi::layers {

// A typed place at a fixed offset of one memory block (View of bytes).
struct Slot {
  std::size_t offset_bytes = 0;
  kernels::DType dtype = kernels::DType::float32;
  std::int64_t count = 0;

  kernels::View in(const kernels::View& memory) const {
    KINTSUGI_ASSERT(memory.dtype == kernels::DType::byte);
    KINTSUGI_ASSERT(offset_bytes + static_cast<std::size_t>(count) * size_of(dtype) <= memory.bytes());
    return {{memory.data.value + offset_bytes}, dtype, count};
  }
};

// Gives out slots one after the other. Slots after a mark are dead once it is rewound to; bytes() is the high-water
// mark.
class MemoryMap {
 public:
  Slot add(kernels::DType dtype, std::int64_t count) {
    const Slot slot{next_, dtype, count};
    next_ = align_up(next_ + static_cast<std::size_t>(count) * size_of(dtype), kAlignment);
    bytes_ = std::max(bytes_, next_);
    return slot;
  }
  std::size_t mark() const { return next_; }
  void rewind(std::size_t mark) { next_ = mark; }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kAlignment = 64;  // a cache line, as buffers
  std::size_t next_ = 0;
  std::size_t bytes_ = 0;
};

// A run of consecutive parameters of one group; count 0: absent.
struct ParameterRange {
  GroupId group;
  std::int64_t offset = 0;
  std::int64_t count = 0;

  kernels::View in(const GroupViews& views) const {
    return count == 0 ? kernels::View{} : views.at(group.value).slice(offset, count);
  }
};

ParameterRange find(const ModelLayout& layout, std::string_view name);
// From the start of `first` to the end of `last`, which lie in one group without gaps.
ParameterRange find(const ModelLayout& layout, std::string_view first, std::string_view last);

// Names of the family's parameters outside blocks, and the prefix of those of block 0, 1, ...
std::string embedding_name(const ModelConfig& config);
std::string output_name(const ModelConfig& config);
std::string final_norm_name(const ModelConfig& config);  // without ".weight"
std::string block_prefix(const ModelConfig& config, std::int64_t block);

// Where a layer runs and with which parameters: handed down from one call of a program.
struct Run {
  kernels::Ops& ops;
  kernels::Stream& stream;
  const GroupViews& weights;
  const GroupViews* gradients = nullptr;  // backward only
  bool accumulate = false;
};

class Linear {
 public:
  Linear(ParameterRange weight, ParameterRange bias, kernels::LinearShape shape);

  double flops() const;  // of one product of its shape
  void forward(const Run& run, const kernels::View& out, const kernels::View& in) const;
  void backward_weight(const Run& run, const kernels::View& grad_out, const kernels::View& in) const;
  void backward_input(const Run& run, const kernels::View& grad_in, const kernels::View& grad_out) const;

 private:
  ParameterRange weight_, bias_;
  kernels::LinearShape shape_;
};

// Layer norm (GPT-2) or RMS norm (Llama). Backward needs the statistics of a forward of the same rows: programs compute
// the norm again in backward, which costs less than keeping its output.
class Norm {
 public:
  struct Statistics {
    Slot mean, rstd;  // (rows) f32; mean is unused by RMS norm
  };

  // `name` without ".weight".
  Norm(const ModelLayout& layout, const std::string& name);

  static Statistics add_statistics(MemoryMap& memory, std::int64_t rows);
  void forward(const Run& run, const kernels::View& out, const kernels::View& in, const Statistics& statistics,
               const kernels::View& workspace) const;
  void backward(const Run& run, const kernels::View& grad_in, const kernels::View& grad_out, const kernels::View& in,
                const Statistics& statistics, const kernels::View& workspace) const;

 private:
  bool rms_;
  ParameterRange weight_, bias_;
  std::int64_t width_;
  float epsilon_;
};

inline kernels::DType activation_dtype(Precision precision) {
  return precision == Precision::float32 ? kernels::DType::float32 : kernels::DType::bfloat16;
}

std::unique_ptr<LayerProgram> make_embedding(const ModelLayout& layout, MicrobatchShape shape, kernels::Ops& ops);
std::unique_ptr<LayerProgram> make_block(const ModelLayout& layout, std::int64_t block, MicrobatchShape shape,
                                         Precision precision, kernels::Ops& ops);
std::unique_ptr<LayerProgram> make_head(const ModelLayout& layout, MicrobatchShape shape, Precision precision,
                                        kernels::Ops& ops);

// Rows of logits that exist at once, at most 2^25 logits (128 MiB in float32): enough rows to make up for reading
// the output matrix and its gradient once a chunk. Chunks are equal but for the last.
std::int64_t head_chunk_rows(std::int64_t rows, std::int64_t vocabulary);

}  // namespace kintsugi::layers
