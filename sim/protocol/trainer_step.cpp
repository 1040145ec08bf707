// Trainer: the instructions of a step, as engine/pipeline/executor.cpp carries them out.
#include <algorithm>

#include "base/mutant.hpp"
#include "sim/protocol/trainer.hpp"

namespace kintsugi::sim::protocol {

using transport::MessageKey;
using transport::MessageKind;

Task Trainer::run_instruction(const Instruction& i) {
  Place& place = stages_[i.stage];
  switch (i.op) {
    case Opcode::send_kept: send_partial(i.layer, i.node, kept_.at(i.buffer)); break;
    case Opcode::fetch_weights: co_return co_await fetch_weights(i.group);
    case Opcode::load_tokens: {
      if (parts_.carrier->error) co_return *parts_.carrier->error;  // the feeders were stopped
      const bool stale = KINTSUGI_MUTANT(repeats_samples) && is_first_step() && state_.step > Step{};
      place.tokens[i.slot] = arithmetic_.tokens(stale ? state_.step : in_progress(), i.microbatch);
      break;
    }
    case Opcode::receive_activation: {
      const Result<Parcel> got = co_await parts_.waiting.parcel(
          *parts_.carrier, i.peer, key(MessageKind::activation, i.stage.value - 1, i.microbatch));
      if (!got) co_return got.error();
      place.inputs[i.slot][0] = got->payload.sum.mark;
      break;
    }
    case Opcode::send_activation: {
      Outbox& outbox = activations_sent_[{i.stage, i.slot}];
      if (!outbox) outbox = make_outbox();
      Payload payload;
      payload.sum.mark = place.outputs.at(i.slot);
      co_return send(i.peer, key(MessageKind::activation, i.stage.value, i.microbatch), std::move(payload), outbox);
    }
    case Opcode::drain_activation: {
      Outbox& outbox = activations_sent_[{i.stage, i.slot}];
      if (!outbox) outbox = make_outbox();
      co_return co_await parts_.waiting.released(*parts_.carrier, outbox);
    }
    case Opcode::load_targets: {
      if (parts_.carrier->error) co_return *parts_.carrier->error;
      break;
    }
    case Opcode::receive_gradient: {
      const Result<Parcel> got = co_await parts_.waiting.parcel(
          *parts_.carrier, i.peer, key(MessageKind::activation_gradient, i.stage.value, i.microbatch));
      if (!got) co_return got.error();
      place.output_gradients[i.microbatch % 2] = got->payload.sum.mark;
      break;
    }
    case Opcode::send_gradient: {
      Outbox& outbox = gradients_sent_[i.stage][i.microbatch % 2];
      if (!outbox) outbox = make_outbox();
      Payload payload;
      payload.sum.mark = place.input_gradients[i.microbatch % 2];
      co_return send(i.peer, key(MessageKind::activation_gradient, i.stage.value - 1, i.microbatch), std::move(payload),
                     outbox);
    }
    case Opcode::merge_lanes: {
      Sum& sum = gradients_.at({i.layer, i.buffer});
      sum = added(sum, gradients_.at({i.layer, i.source}));
      const auto source = done_.find({i.layer, i.source});
      done_.at({i.layer, i.buffer}).count += source->second.count;
      done_.erase(source);
      break;
    }
    case Opcode::send_partial: send_partial(i.layer, i.node, gradients_.at({i.layer, i.buffer})); break;
    case Opcode::reduce_group: co_return co_await reduce_group(i.group);
    case Opcode::receive_reduced: {
      if (KINTSUGI_MUTANT(commits_without_acknowledgement)) break;  // after the vote
      co_return co_await receive_reduced(i);
    }
    case Opcode::forward:
    case Opcode::backward: KINTSUGI_UNREACHABLE();
  }
  if (parts_.carrier->error && (i.op == Opcode::send_kept || i.op == Opcode::send_partial)) {
    co_return *parts_.carrier->error;
  }
  co_return Result<void>();
}

Task Trainer::receive_reduced(const Instruction& i) {
  const Result<Parcel> got =
      co_await parts_.waiting.parcel(*parts_.carrier, i.peer, key(MessageKind::reduced_gradient, i.shard.value, 0));
  if (!got) co_return got.error();
  reduced_.at(i.shard) = {got->payload.sum.mark, in_progress()};
  co_return Result<void>();
}

Task Trainer::fetch_weights(GroupId id) {
  const ParameterGroup& group = parts_.job.layout.group(id);
  for (std::uint32_t s = group.first_shard; s < group.first_shard + group.shard_count; ++s) {
    const RankId primary = parts_.plan.primary_of({s});
    if (primary == parts_.self) continue;
    const Result<Parcel> got =
        co_await parts_.waiting.parcel(*parts_.carrier, primary, {MessageKind::weights, state_.step, s, 0});
    if (!got) co_return got.error();
    (*weights_)[{s}] = got->payload.sum.mark;
  }
  co_return Result<void>();
}

Mark Trainer::weights_of(LayerId layer) const {
  return arithmetic_.weights_of(layer, [&](ShardId s) { return weights_->at(s); });
}

Mark Trainer::stage_input(const Instruction& i) const {
  if (i.stage.value == 0) return stages_.at(i.stage).tokens.at(i.slot);
  if (i.source == kOwnSlot) return stages_.at(i.stage).inputs.at(i.slot).at(0);
  return stages_.at({i.stage.value - 1}).outputs.at(i.source);
}

void Trainer::forward(const Instruction& i) {
  const LayerRange layers = program_.work(i.stage).layers;
  const std::uint32_t at = i.layer.value - layers.first;
  Place& place = stages_[i.stage];
  const Mark in = at == 0 ? stage_input(i) : place.inputs[i.slot].at(at);
  const bool head = i.layer.value + 1 == parts_.job.layout.layer_count();
  if (head) return;
  const Mark out = arithmetic_.forward(i.layer, in, weights_of(i.layer));
  if (i.layer.value + 1 == layers.end)
    place.outputs[i.slot] = out;
  else
    place.inputs[i.slot][at + 1] = out;
}

void Trainer::backward(const Instruction& i) {
  const LayerRange layers = program_.work(i.stage).layers;
  const std::uint32_t at = i.layer.value - layers.first;
  Place& place = stages_[i.stage];
  const Mark in = at == 0 ? stage_input(i) : place.inputs[i.slot].at(at);
  const bool head = i.layer.value + 1 == parts_.job.layout.layer_count();
  Mark grad_out = 0;
  if (head) {
    grad_out = arithmetic_.targets(in_progress(), i.microbatch);
    losses_[i.microbatch] = arithmetic_.loss(in, grad_out);
  } else if (i.layer.value + 1 < layers.end) {
    grad_out = place.output_gradients[i.microbatch % 2];
  } else {
    const StageId next{i.stage.value + 1};
    const bool local = parts_.plan.rank_of(next, {i.microbatch / per_lane_}) == parts_.self;
    grad_out = local ? stages_[next].input_gradients[i.microbatch % 2] : place.output_gradients[i.microbatch % 2];
  }
  const Mark weights = weights_of(i.layer);
  const Sum one = arithmetic_.weight_gradient(i.layer, grad_out, in, weights, i.microbatch);
  Sum& sum = gradients_[{i.layer, i.buffer}];
  sum = i.accumulate ? added(sum, one) : one;
  const Mark grad_in = arithmetic_.input_gradient(i.layer, grad_out, in, weights);
  // Between layers of a stage the gradient stays in one place.
  if (at == 0)
    place.input_gradients[i.microbatch % 2] = grad_in;
  else
    place.output_gradients[i.microbatch % 2] = grad_in;
  if ((i.microbatch + 1) % per_lane_ == 0) done_[{i.layer, i.buffer}] = {i.microbatch / per_lane_, 1};
}

Sum Trainer::added(const Sum& left, const Sum& right) const {
  parts_.watch.sums_are_added(parts_.self, left, right);
  return add(left, right);
}

Result<void> Trainer::send(RankId to, const MessageKey& key, Payload payload, const Outbox& outbox) {
  if (parts_.carrier->error) return *parts_.carrier->error;
  ++*outbox;
  parts_.fabric.send({parts_.self, to, parts_.plan.generation, key, std::move(payload), outbox});
  return {};
}

void Trainer::send_partial(LayerId layer, TreeNode node, const Sum& sum) {
  for (const GroupId g : parts_.job.layout.groups_used_by(layer)) {
    const ParameterGroup& group = parts_.job.layout.group(g);
    const auto use =
        static_cast<std::uint32_t>(std::find(group.uses.begin(), group.uses.end(), layer) - group.uses.begin());
    for (std::uint32_t s = group.first_shard; s < group.first_shard + group.shard_count; ++s) {
      const RankId primary = parts_.plan.primary_of({s});
      if (primary == parts_.self) continue;
      Payload payload;
      payload.sum = sum;
      const Result<void> sent =
          send(primary, key(MessageKind::partial_sum, s, use << 16 | node.first), std::move(payload), sent_);
      if (!sent) return;
    }
  }
}

const std::vector<Partial>& Trainer::partials(LayerId layer) {
  std::vector<Partial>& known = (is_first_step() ? partials_first_ : partials_whole_)[layer.value];
  if (known.empty()) known = partials_of_layer(parts_.plan, is_first_step() ? redo_ : whole_, layer);
  return known;
}

Task Trainer::reduce_group(GroupId id) {
  const ParameterGroup& group = parts_.job.layout.group(id);
  for (std::uint32_t s = group.first_shard; s < group.first_shard + group.shard_count; ++s) {
    if (parts_.plan.primary_of({s}) != parts_.self) continue;
    Sum total;
    for (std::size_t use = 0; use < group.uses.size(); ++use) {
      Sum sum;
      KINTSUGI_CO_TRY(co_await reduce_use(group.uses[use], {s}, use, sum));
      const Mark of_use = use == 0 ? sum.mark : add(total, sum).mark;
      const Mark gradient = arithmetic_.reduced({s}, {of_use, 0});
      parts_.watch.reduced(parts_.self, {s}, in_progress(), sum, gradient);
      total.mark = of_use;
    }
    const Mark gradient = arithmetic_.reduced({s}, total);
    reduced_.at({s}) = {gradient, in_progress()};
    for (const RankId replica : parts_.plan.shards[s].replicas) {
      Payload payload;
      payload.sum.mark = gradient;
      KINTSUGI_CO_TRY(send(replica, key(MessageKind::reduced_gradient, s, 0), std::move(payload), sent_));
    }
  }
  co_return Result<void>();
}

Task Trainer::reduce_use(LayerId layer, ShardId shard, std::size_t use, Sum& out) {
  std::vector<TreeNode> nodes;
  std::vector<Sum> sums;
  for (const Partial& partial : partials(layer)) {
    nodes.push_back(partial.node);
    if (partial.rank == parts_.self) {
      sums.push_back(partial.kept ? kept_.at(partial.buffer) : gradients_.at({layer, partial.buffer}));
      continue;
    }
    const std::uint32_t part = static_cast<std::uint32_t>(use) << 16 | partial.node.first;
    const Result<Parcel> got =
        co_await parts_.waiting.parcel(*parts_.carrier, partial.rank, key(MessageKind::partial_sum, shard.value, part));
    if (!got) co_return got.error();
    sums.push_back(got->payload.sum);
  }
  if (KINTSUGI_MUTANT(adds_in_reverse)) std::reverse(sums.begin(), sums.end());
  const std::vector<std::uint32_t> merges = LaneTree(parts_.plan.lanes).merges_after(nodes);
  std::vector<Sum> stack;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    stack.push_back(sums[i]);
    for (std::uint32_t m = 0; m < merges[i]; ++m) {
      const Sum right = stack.back();
      stack.pop_back();
      stack.back() = added(stack.back(), right);
    }
  }
  out = stack.front();
  co_return Result<void>();
}

}  // namespace kintsugi::sim::protocol
