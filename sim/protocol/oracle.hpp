// The run without faults, computed with no plan and no ranks: what every committed state must be, whatever happened.
#pragma once

#include <deque>
#include <vector>

#include "sim/protocol/marks.hpp"
#include "sim/protocol/shape.hpp"

namespace kintsugi::sim::protocol {

// How marks are made, by whoever computes: the oracle over whole layers, ranks over what they hold.
struct Arithmetic {
  const Job& job;

  Mark tokens(Step step, std::uint32_t microbatch) const;
  Mark targets(Step step, std::uint32_t microbatch) const { return mix(11, tokens(step, microbatch)); }
  // `weights`: of all shards that the layer uses, ascending, folded.
  Mark forward(LayerId layer, Mark in, Mark weights) const { return mix(12, in, weights, layer.value); }
  Mark input_gradient(LayerId layer, Mark grad_out, Mark in, Mark weights) const {
    return fold(mix(13, grad_out, in, weights), layer.value);
  }
  Sum weight_gradient(LayerId layer, Mark grad_out, Mark in, Mark weights, std::uint32_t microbatch) const {
    return {fold(mix(14, grad_out, in, weights), layer.value), std::uint64_t{1} << microbatch};
  }
  double loss(Mark head_in, Mark target) const { return as_number(mix(15, head_in, target)); }
  // Of a shard, from its uses' sums, added in order.
  Mark reduced(ShardId shard, const Sum& uses) const { return mix(16, uses.mark, shard.value); }
  double squared_norm(ShardId shard, Mark reduced, Step step) const;

  // Folds published weights of the shards of `layer`; `weight_of(ShardId)`.
  template <class WeightOf>
  Mark weights_of(LayerId layer, WeightOf weight_of) const {
    Mark mark = 17;
    for (const GroupId g : job.layout.groups_used_by(layer)) {
      const ParameterGroup& group = job.layout.group(g);
      for (std::uint32_t s = group.first_shard; s < group.first_shard + group.shard_count; ++s) {
        mark = fold(mark, weight_of(ShardId{s}));
      }
    }
    return mark;
  }
};

class Oracle {
 public:
  explicit Oracle(const Job& job);

  // By shard, after `step`.
  const std::vector<Mark>& states(Step step);
  // What the record of `step` must say; its generation and what depends on it left out.
  const DecisionRecord& record(Step step);
  // Of the job's end.
  Digest final_digest();

 private:
  void make_next();
  Digest digest_after(Step step) const;

  const Job& job_;
  const Arithmetic arithmetic_;
  // By step; what was handed out stays where it is.
  std::deque<std::vector<Mark>> states_;
  std::deque<DecisionRecord> records_;  // that of 0 says nothing
};

}  // namespace kintsugi::sim::protocol
