#include "engine/pipeline/rank_memory.hpp"

#include <algorithm>

#include "base/units.hpp"

namespace kintsugi {

namespace {

using kernels::DType;
using kernels::View;

constexpr std::size_t kViewAlignment = 256;  // bytes: no two views share a cache line or a GPU's memory transaction

class Layouter {
 public:
  Layouter(const RankProgram& program, const ModelLayout& layout, const JobConfig& job, const LayerPrograms& layers,
           kernels::DevicePtr arena, kernels::DevicePtr local)
      : program_(program), layout_(layout), job_(job), layers_(layers), arena_(arena), local_(local) {}

  RankMemory run() {
    weights();
    for (const StageWork& work : program_.stages) stage(work);
    kept_sums();
    shared_buffers();
    shards();
    out_.arena_bytes = arena_.used_bytes();
    out_.local_bytes = local_.used_bytes();
    return std::move(out_);
  }

 private:
  std::int64_t rows() const { return microbatch_shape(job_).rows(); }
  View activation(ViewAllocator& region) {
    return region.take(activation_dtype(job_.precision), rows() * job_.model.width);
  }

  // Where peers read what lies there; else where pages are huge.
  ViewAllocator& region(const std::vector<GroupId>& lent, GroupId group) {
    return std::find(lent.begin(), lent.end(), group) != lent.end() ? arena_ : local_;
  }

  void weights() {
    out_.weights.resize(layout_.groups().size());
    for (const GroupId g : program_.groups) {
      View& view = out_.weights[g.value];
      view = region(program_.shared_groups, g).take(activation_dtype(job_.precision), layout_.group(g).count);
      out_.parameter_bytes += view.bytes();
    }
  }

  void stage(const StageWork& work) {
    StageMemory memory;
    const bool first = work.layers.first == 0;
    const bool last = work.layers.end == layout_.layer_count();
    for (std::uint32_t slot = 0; slot < work.slots; ++slot) {
      if (first) memory.tokens.push_back(local_.take(DType::int32, rows()));
      std::vector<View> inputs, saved;
      for (std::uint32_t l = work.layers.first; l < work.layers.end; ++l) {
        inputs.push_back(l == 0 ? View{} : activation(local_));
        saved.push_back(local_.take(DType::byte, static_cast<std::int64_t>(layers_.at({l})->saved_bytes())));
      }
      memory.inputs.push_back(std::move(inputs));
      memory.saved.push_back(std::move(saved));
      if (!last) memory.outputs.push_back(activation(arena_));
    }
    for (std::size_t i = 0; i < 2; ++i) {
      if (!first) memory.input_gradients[i] = activation(arena_);
      if (!last) memory.output_gradients[i] = activation(local_);
    }
    for (std::uint32_t b = 0; b < work.gradient_buffers; ++b) {
      std::vector<GroupViews> by_layer;
      for (std::uint32_t l = work.layers.first; l < work.layers.end; ++l) {
        GroupViews views(layout_.groups().size());
        for (const GroupId g : layout_.groups_used_by({l})) {
          views[g.value] = region(program_.shared_groups, g).take(DType::float32, layout_.group(g).count);
        }
        by_layer.push_back(std::move(views));
      }
      memory.gradients.push_back(std::move(by_layer));
    }
    out_.stages.emplace(work.stage, std::move(memory));
  }

  void kept_sums() {
    for (const LayerSum& sum : program_.kept) {
      GroupViews& views = out_.kept.emplace_back(layout_.groups().size());
      for (const GroupId g : layout_.groups_used_by(sum.layer)) {
        views[g.value] = arena_.take(DType::float32, layout_.group(g).count);
      }
    }
  }

  void shared_buffers() {
    std::size_t workspace = 0;
    for (const auto& [id, layer] : layers_) workspace = std::max(workspace, layer->workspace_bytes());
    out_.workspace = local_.take(DType::byte, static_cast<std::int64_t>(workspace));
    for (View& v : out_.layer_gradients) v = activation(local_);
    out_.targets = local_.take(DType::int32, rows());
    out_.losses = local_.take(DType::float32, program_.microbatches);
  }

  // A rank that has survivors leaves its partial sums as they are until the step is final: they would be salvaged. One
  // that is alone finishes each tree in the place of its first sum, which saves memory and a copy of the whole gradient.
  View own_partial(const Shard& shard) const {
    if (!program_.alone) return {};
    const LayerId owner = layout_.group(shard.group).owner;
    for (const Instruction& i : program_.instructions) {
      if (i.op != Opcode::send_partial || i.layer != owner) continue;
      const std::uint32_t at = owner.value - program_.work(i.stage).layers.first;
      return out_.stages.at(i.stage).gradients[i.buffer][at][shard.group.value].slice(shard.offset, shard.count);
    }
    return {};
  }

  void shards() {
    std::int64_t largest_with_uses = 0;
    for (const ShardId s : program_.shards) {
      const Shard& shard = layout_.shard(s);
      const View own = own_partial(shard);
      out_.reduced[s] =
          own.empty() ? region(program_.shipped_groups, shard.group).take(DType::float32, shard.count) : own;
      if (layout_.group(shard.group).uses.size() > 1) largest_with_uses = std::max(largest_with_uses, shard.count);
    }
    for (const ShardId s : program_.replicas) {
      out_.reduced[s] = local_.take(DType::float32, layout_.shard(s).count);
    }
    out_.reduced_use = local_.take(DType::float32, largest_with_uses);
    const auto primaries = static_cast<std::int64_t>(program_.shards.size());
    const auto replicas = static_cast<std::int64_t>(program_.replicas.size());
    out_.squared_norms = local_.take(DType::byte, 8 * primaries);
    out_.digests = local_.take(DType::byte, 16 * (primaries + replicas + 1));
  }

  const RankProgram& program_;
  const ModelLayout& layout_;
  const JobConfig& job_;
  const LayerPrograms& layers_;
  ViewAllocator arena_;
  ViewAllocator local_;
  RankMemory out_;
};

}  // namespace

View ViewAllocator::take(DType dtype, std::int64_t count) {
  const View view{{base_.value + used_}, dtype, count};
  used_ = align_up(used_ + view.bytes(), kViewAlignment);
  return view;
}

DType activation_dtype(Precision precision) {
  return precision == Precision::float32 ? DType::float32 : DType::bfloat16;
}

MicrobatchShape microbatch_shape(const JobConfig& job) {
  return {job.batch.microbatch, job.batch.length};
}

LayerPrograms make_layer_programs(const RankProgram& program, const ModelLayout& layout, const JobConfig& job,
                                  kernels::Ops& ops) {
  LayerPrograms layers;
  for (const StageWork& work : program.stages) {
    for (std::uint32_t l = work.layers.first; l < work.layers.end; ++l) {
      layers[{l}] = make_layer_program(layout, {l}, microbatch_shape(job), job.precision, ops);
    }
  }
  return layers;
}

RankMemory lay_out_memory(const RankProgram& program, const ModelLayout& layout, const JobConfig& job,
                          const LayerPrograms& layers, kernels::DevicePtr arena, kernels::DevicePtr local) {
  return Layouter(program, layout, job, layers, arena, local).run();
}

}  // namespace kintsugi
