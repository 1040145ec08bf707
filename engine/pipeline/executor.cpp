#include "engine/pipeline/executor.hpp"

#include <algorithm>
#include <optional>

#include "engine/pipeline/phase.hpp"

namespace kintsugi {

using kernels::View;
using transport::MessageKey;
using transport::MessageKind;

namespace collectives = transport::collectives;

WorkCount& WorkCount::operator+=(const WorkCount& other) {
  forward += other.forward;
  backward += other.backward;
  forward_again += other.forward_again;
  backward_again += other.backward_again;
  flops += other.flops;
  return *this;
}

Executor::Executor(const Parts& parts)
    : parts_(parts),
      ops_(parts.device.ops()),
      self_(parts.program.rank),
      per_lane_(static_cast<std::uint32_t>(parts.job.batch.microbatches_per_lane())),
      loss_scale_(static_cast<float>(1.0 / static_cast<double>(parts.job.batch.tokens_per_step()))),
      whole_(parts.plan) {
  for (const auto& [shard, view] : parts.memory.reduced) reduced_[shard] = Step{};
}

void Executor::enqueue_step(Step step) {
  redoing_ = step_ == Step{};
  step_ = step;
  note([this, step] { progress_ = {step, {}, {}}; });
  std::optional<StepPhase> shown;
  for (const Instruction& i : (redoing_ ? parts_.first : parts_.program).instructions) {
    if (shown != phase_of(i.op)) enqueue_phase(parts_.stream, *(shown = phase_of(i.op)));
    run(i);
  }
}

void Executor::drain_step() {
  parts_.communicator.drain(sent_);
  for (auto& [slot, outbox] : activations_sent_) parts_.communicator.drain(outbox);
  for (auto& [id, outboxes] : gradients_sent_) {
    for (Outbox& outbox : outboxes) parts_.communicator.drain(outbox);
  }
}

void Executor::run(const Instruction& i) {
  switch (i.op) {
    case Opcode::send_kept: return send_partial(i, parts_.memory.kept[i.buffer]);
    case Opcode::fetch_weights: return fetch_weights(i.group);
    case Opcode::load_tokens: return load(i, *parts_.tokens, stage(i.stage).tokens[i.slot], false);
    case Opcode::receive_activation: return receive_activation(i);
    case Opcode::forward: return forward(i);
    case Opcode::send_activation: return send_activation(i);
    case Opcode::drain_activation: return parts_.communicator.drain(activations_sent_[{i.stage, i.slot}]);
    case Opcode::load_targets: return load(i, *parts_.targets, parts_.memory.targets, true);
    case Opcode::receive_gradient: return receive_gradient(i);
    case Opcode::backward: return backward(i);
    case Opcode::send_gradient: return send_gradient(i);
    case Opcode::merge_lanes: return merge_lanes(i);
    case Opcode::send_partial: return send_partial(i, gradients(i.layer, i.buffer));
    case Opcode::reduce_group: return reduce_group(i.group);
    case Opcode::receive_reduced: return receive_reduced(i);
  }
  KINTSUGI_UNREACHABLE();
}

MessageKey Executor::key(MessageKind kind, std::uint32_t item, std::uint32_t part) const {
  return {kind, step_, item, part};
}

// Version step - 1, as its primaries published it; this rank's own shards are already in place.
void Executor::fetch_weights(GroupId group) {
  const ParameterGroup& g = parts_.layout.group(group);
  std::vector<collectives::Subscription> wanted;
  for (std::uint32_t s = g.first_shard; s < g.first_shard + g.shard_count; ++s) {
    const RankId primary = parts_.plan.primary_of({s});
    if (primary == self_) continue;
    const Shard& shard = parts_.layout.shards()[s];
    wanted.push_back(
        {{shard.id, {step_.value - 1}}, primary, parts_.memory.weights[group.value].slice(shard.offset, shard.count)});
  }
  if (!wanted.empty()) parts_.communicator.collect(std::move(wanted));
}

void Executor::load(const Instruction& i, Prefetcher& from, View into, bool targets) {
  const MicrobatchKey expected{{step_.value - 1}, lane_of(i), i.microbatch % per_lane_};
  parts_.stream.enqueue("load", [this, &from, into, targets, expected]() -> Result<void> {
    Communicator& communicator = parts_.communicator;
    auto lease = communicator.peers().timed([&] { return from.take(communicator.deadline()); });
    if (!lease) return lease.error();
    KINTSUGI_ASSERT_MSG(lease->key() == expected, "the data feeder and the instruction list disagree");
    const auto rows = targets ? lease->targets() : lease->tokens();
    parts_.device.copy_to_device(parts_.stream, into, rows.data());
    return {};
  });
}

View Executor::stage_input(const Instruction& i) const {
  if (i.source == kOwnSlot) return stage(i.stage).inputs[i.slot].front();
  return stage({i.stage.value - 1}).outputs[i.source];
}

void Executor::forward(const Instruction& i) {
  const StageMemory& memory = stage(i.stage);
  const LayerRange layers = parts_.program.work(i.stage).layers;
  const std::uint32_t at = i.layer.value - layers.first;
  const bool last_of_stage = i.layer.value + 1 == layers.end;
  const bool head = i.layer.value + 1 == parts_.layout.layer_count();
  ForwardArguments a;
  a.weights = &parts_.memory.weights;
  if (i.layer.value == 0) a.tokens = memory.tokens[i.slot];
  a.in = at == 0 ? stage_input(i) : memory.inputs[i.slot][at];
  if (!head) a.out = last_of_stage ? memory.outputs[i.slot] : memory.inputs[i.slot][at + 1];
  a.saved = memory.saved[i.slot][at];
  a.workspace = parts_.memory.workspace;
  LayerProgram& layer = *parts_.layers.at(i.layer);
  if (at == 0) note([this, lane = lane_of(i)] { progress_.begun.insert(lane); });
  layer.forward(parts_.stream, a);
  note([this, flops = layer.forward_flops(), last_of_stage, again = is_again(lane_of(i))] {
    count_.flops += flops;
    if (!last_of_stage) return;
    ++count_.forward;
    if (again) ++count_.forward_again;
  });
}

template <class Note>
void Executor::note(Note note) {
  parts_.stream.enqueue("note", [note]() -> Result<void> {
    note();
    return {};
  });
}

bool Executor::is_again(LaneId lane) const {
  return redoing_ && std::find(parts_.again.begin(), parts_.again.end(), lane) != parts_.again.end();
}

void Executor::note_backward(const Instruction& i) {
  const bool lane_ends = (i.microbatch + 1) % per_lane_ == 0;
  const bool last = i.layer == LayerId{parts_.program.work(i.stage).layers.first};
  const double flops = parts_.layers.at(i.layer)->backward_flops();
  note([this, i, lane_ends, last, flops, again = is_again(lane_of(i))] {
    count_.flops += flops;
    if (lane_ends) progress_.sums[{i.layer, i.buffer}] = {lane_of(i).value, 1};
    if (!last) return;
    ++count_.backward;
    if (again) ++count_.backward_again;
  });
}

// Where the gradient of the stage's output lies: what the stage after it computed here, or what was received.
View Executor::output_gradient(const Instruction& i) const {
  const StageId next{i.stage.value + 1};
  if (next.value == parts_.plan.stages.size()) return {};
  const bool local = parts_.plan.rank_of(next, lane_of(i)) == self_;
  return local ? stage(next).input_gradients[i.microbatch % 2] : stage(i.stage).output_gradients[i.microbatch % 2];
}

const GroupViews& Executor::gradients(LayerId layer, std::uint32_t buffer) const {
  const StageId at = parts_.plan.stage_of(layer);
  return stage(at).gradients[buffer][layer.value - parts_.program.work(at).layers.first];
}

void Executor::backward(const Instruction& i) {
  const StageMemory& memory = stage(i.stage);
  const LayerRange layers = parts_.program.work(i.stage).layers;
  const std::uint32_t at = i.layer.value - layers.first;
  const bool last_of_stage = i.layer.value + 1 == layers.end;
  const bool head = i.layer.value + 1 == parts_.layout.layer_count();
  BackwardArguments a;
  a.weights = &parts_.memory.weights;
  a.gradients = &gradients(i.layer, i.buffer);
  a.accumulate = i.accumulate;
  if (i.layer.value == 0) a.tokens = memory.tokens[i.slot];
  a.in = at == 0 ? stage_input(i) : memory.inputs[i.slot][at];
  if (head) {
    a.targets = parts_.memory.targets;
    a.loss = parts_.memory.losses.slice(i.microbatch, 1);
  } else {
    a.grad_out = last_of_stage ? output_gradient(i) : parts_.memory.layer_gradients[(at + 1) % 2];
  }
  if (i.layer.value != 0)
    a.grad_in = at == 0 ? memory.input_gradients[i.microbatch % 2] : parts_.memory.layer_gradients[at % 2];
  a.saved = memory.saved[i.slot][at];
  a.workspace = parts_.memory.workspace;
  a.loss_scale = loss_scale_;
  // The microbatch before the last used this boundary gradient: its reader must be done.
  if (at == 0 && i.layer.value != 0) parts_.communicator.drain(gradients_sent_[i.stage][i.microbatch % 2]);
  note([this, place = std::pair(i.layer, i.buffer)] { progress_.sums.erase(place); });
  parts_.layers.at(i.layer)->backward(parts_.stream, a);
  note_backward(i);
}

void Executor::send_activation(const Instruction& i) {
  parts_.communicator.send(i.peer, key(MessageKind::activation, i.stage.value, i.microbatch),
                           stage(i.stage).outputs[i.slot], activations_sent_[{i.stage, i.slot}]);
}

void Executor::receive_activation(const Instruction& i) {
  parts_.communicator.receive(i.peer, key(MessageKind::activation, i.stage.value - 1, i.microbatch),
                              stage(i.stage).inputs[i.slot].front());
}

void Executor::send_gradient(const Instruction& i) {
  parts_.communicator.send(i.peer, key(MessageKind::activation_gradient, i.stage.value - 1, i.microbatch),
                           stage(i.stage).input_gradients[i.microbatch % 2],
                           gradients_sent_[i.stage][i.microbatch % 2]);
}

void Executor::receive_gradient(const Instruction& i) {
  parts_.communicator.receive(i.peer, key(MessageKind::activation_gradient, i.stage.value, i.microbatch),
                              stage(i.stage).output_gradients[i.microbatch % 2]);
}

void Executor::merge_lanes(const Instruction& i) {
  const GroupViews& sum = gradients(i.layer, i.buffer);
  const GroupViews& right = gradients(i.layer, i.source);
  for (const GroupId g : parts_.layout.groups_used_by(i.layer)) {
    ops_.add(parts_.stream, sum[g.value], sum[g.value], right[g.value]);
  }
  note([this, i] {
    const auto source = progress_.sums.find({i.layer, i.source});
    progress_.sums.at({i.layer, i.buffer}).count += source->second.count;
    progress_.sums.erase(source);
  });
}

void Executor::send_partial(const Instruction& i, const GroupViews& sum) {
  for (const GroupId g : parts_.layout.groups_used_by(i.layer)) {
    const ParameterGroup& group = parts_.layout.group(g);
    const auto use = std::find(group.uses.begin(), group.uses.end(), i.layer) - group.uses.begin();
    for (std::uint32_t s = group.first_shard; s < group.first_shard + group.shard_count; ++s) {
      const Shard& shard = parts_.layout.shards()[s];
      const RankId primary = parts_.plan.primary_of({s});
      if (primary == self_) continue;
      parts_.communicator.send_partial({step_, shard.id, static_cast<std::uint16_t>(use)}, primary,
                                       {i.node, sum[g.value].slice(shard.offset, shard.count)}, sent_);
    }
  }
}

void Executor::reduce_group(GroupId id) {
  const ParameterGroup& group = parts_.layout.group(id);
  for (std::uint32_t s = group.first_shard; s < group.first_shard + group.shard_count; ++s) {
    if (parts_.plan.primary_of({s}) != self_) continue;
    const Shard& shard = parts_.layout.shards()[s];
    const View reduced = parts_.memory.reduced.at(shard.id);
    reduce_use(shard, group, 0, reduced);
    for (std::size_t use = 1; use < group.uses.size(); ++use) {
      const View other = parts_.memory.reduced_use.slice(0, shard.count);
      reduce_use(shard, group, use, other);
      ops_.add(parts_.stream, reduced, reduced, other);
    }
    enqueue_reduced(shard.id);
    for (const RankId replica : parts_.plan.shards[s].replicas) {
      parts_.communicator.send(replica, key(MessageKind::reduced_gradient, s, 0), reduced, sent_);
    }
  }
}

void Executor::receive_reduced(const Instruction& i) {
  parts_.communicator.receive(i.peer, key(MessageKind::reduced_gradient, i.shard.value, 0),
                              parts_.memory.reduced.at(i.shard));
  enqueue_reduced(i.shard);
}

void Executor::enqueue_reduced(ShardId shard) {
  parts_.stream.enqueue("reduced", [at = &reduced_.at(shard), step = step_]() -> Result<void> {
    *at = step;
    return {};
  });
}

void Executor::reduce_use(const Shard& shard, const ParameterGroup& group, std::size_t use, View out) {
  const LayerId layer = group.uses[use];
  std::vector<collectives::LaneRange> ranges;
  std::vector<collectives::PartialSum> own;
  for (const Partial& partial : partials_of_layer(parts_.plan, redoing_ ? parts_.redo : whole_, layer)) {
    ranges.push_back({partial.rank, partial.node.first, partial.node.end()});
    if (partial.rank != self_) continue;
    const GroupViews& sum = partial.kept ? parts_.memory.kept[partial.buffer] : gradients(layer, partial.buffer);
    own.push_back({partial.node, sum[group.id.value].slice(shard.offset, shard.count)});
  }
  parts_.communicator.reduce({step_, shard.id, static_cast<std::uint16_t>(use)},
                             {LaneTree(parts_.plan.lanes), std::move(ranges)}, std::move(own), out);
}

}  // namespace kintsugi
