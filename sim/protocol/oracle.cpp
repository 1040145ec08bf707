#include "sim/protocol/oracle.hpp"

#include <cmath>
#include <limits>

#include "base/lane_tree.hpp"
#include "engine/control/step_commit.hpp"
#include "engine/data/sample_permutation.hpp"
#include "engine/state/learning_rate.hpp"
#include "engine/state/state_digest.hpp"

namespace kintsugi::sim::protocol {

Mark Arithmetic::tokens(Step step, std::uint32_t microbatch) const {
  const auto a_pass = static_cast<std::uint64_t>(job.config.batch.sequences) * 5;  // steps a pass
  const std::uint64_t position = (step.value - 1) * static_cast<std::uint64_t>(job.config.batch.sequences) + microbatch;
  const SamplePermutation order(a_pass, job.config.data.seed, position / a_pass);
  return mix(10, order(position % a_pass));
}

double Arithmetic::squared_norm(ShardId shard, Mark reduced, Step step) const {
  if (shard == ShardId{0} && job.is_skipped(step)) return std::numeric_limits<double>::infinity();
  return as_number(reduced);
}

Oracle::Oracle(const Job& job) : job_(job), arithmetic_{job}, records_(1) {
  std::vector<Mark> first;
  for (const Shard& shard : job.layout.shards()) first.push_back(initial_state(job.shape.seed, shard.id));
  states_.push_back(std::move(first));
}

const std::vector<Mark>& Oracle::states(Step step) {
  while (states_.size() <= step.value) make_next();
  return states_[step.value];
}

const DecisionRecord& Oracle::record(Step step) {
  while (records_.size() <= step.value) make_next();
  return records_[step.value];
}

Digest Oracle::digest_after(Step step) const {
  std::vector<ShardDigest> shards;
  for (std::uint32_t s = 0; s < states_[step.value].size(); ++s) {
    shards.push_back({{s}, digest_of_state(states_[step.value][s])});
  }
  const std::uint64_t updates = records_[step.value].updates;
  const std::uint64_t position = step.value * static_cast<std::uint64_t>(job_.config.batch.sequences);
  return state_digest({job_identity(job_.config), step, updates, position}, shards);
}

Digest Oracle::final_digest() {
  const Step last{static_cast<std::uint64_t>(job_.config.steps)};
  states(last);
  return digest_after(last);
}

void Oracle::make_next() {
  const Step step{states_.size()};
  const std::vector<Mark>& before = states_.back();
  const std::uint32_t layers = job_.layout.layer_count(), microbatches = job_.microbatches();
  const auto per_lane = static_cast<std::uint32_t>(job_.config.batch.microbatches_per_lane());
  const auto lanes = static_cast<std::uint32_t>(job_.config.batch.lanes);
  std::vector<Mark> weights;
  for (std::uint32_t l = 0; l < layers; ++l) {
    weights.push_back(arithmetic_.weights_of({l}, [&](ShardId s) { return published(before[s.value]); }));
  }
  // By lane, then layer.
  std::vector<std::vector<Sum>> of_lane(lanes, std::vector<Sum>(layers));
  std::vector<double> losses(lanes);
  for (std::uint32_t m = 0; m < microbatches; ++m) {
    std::vector<Mark> in{arithmetic_.tokens(step, m)};
    for (std::uint32_t l = 0; l + 1 < layers; ++l) in.push_back(arithmetic_.forward({l}, in[l], weights[l]));
    Mark gradient = arithmetic_.targets(step, m);
    losses[m / per_lane] += arithmetic_.loss(in[layers - 1], gradient);
    for (std::uint32_t l = layers; l-- > 0;) {
      const Sum one = arithmetic_.weight_gradient({l}, gradient, in[l], weights[l], m);
      Sum& sum = of_lane[m / per_lane][l];
      sum = m % per_lane == 0 ? one : add(sum, one);
      gradient = arithmetic_.input_gradient({l}, gradient, in[l], weights[l]);
    }
  }
  const LaneTree tree(lanes);
  const auto total = [&](std::uint32_t layer) {
    const auto sum = [&](const auto& self, TreeNode node) -> Sum {
      if (node.count == 1) return of_lane[node.first][layer];
      return add(self(self, tree.left(node)), self(self, tree.right(node)));
    };
    return sum(sum, tree.root());
  };
  std::vector<Mark> reduced;
  std::vector<double> squares;
  for (const Shard& shard : job_.layout.shards()) {
    const ParameterGroup& group = job_.layout.group(shard.group);
    Sum sum = total(group.uses[0].value);
    for (std::size_t use = 1; use < group.uses.size(); ++use) sum = add(sum, total(group.uses[use].value));
    reduced.push_back(arithmetic_.reduced(shard.id, sum));
    squares.push_back(arithmetic_.squared_norm(shard.id, reduced.back(), step));
  }
  DecisionRecord record{kJob, kLineage, {}, step};
  const double norm = std::sqrt(tree_sum(squares));
  const double loss = tree_sum(losses) / static_cast<double>(job_.config.batch.tokens_per_step());
  record.outcome = std::isfinite(norm) ? Outcome::commit : Outcome::skip;
  record.updates = records_.back().updates + (record.outcome == Outcome::commit ? 1 : 0);
  record.loss = static_cast<float>(loss);
  record.gradient_norm = static_cast<float>(norm);
  record.previous_digest = digest_after({step.value - 1});
  if (record.outcome == Outcome::commit) {
    const kernels::AdamwScalars scalars = update_scalars(job_.config.optimizer, step, record.updates, norm);
    record.clip_scale = scalars.clip_scale;
    record.learning_rate = scalars.learning_rate;
    record.bias_correction1 = scalars.bias_correction1;
    record.bias_correction2 = scalars.bias_correction2;
  }
  std::vector<Mark> after;
  for (std::size_t s = 0; s < reduced.size(); ++s) after.push_back(next_state(before[s], reduced[s], record));
  records_.push_back(record);
  states_.push_back(std::move(after));
}

}  // namespace kintsugi::sim::protocol
