#include "sim/protocol/trainer.hpp"

#include <algorithm>

#include "base/mutant.hpp"

namespace kintsugi::sim::protocol {

using transport::MessageKey;
using transport::MessageKind;

void Holdings::hold(const DecisionRecord& record) {
  if (!records.empty() && records.back() == record) return;
  if (board) board->newest = record;
  records.push_back(record);
}

std::optional<DecisionRecord> Holdings::newest() const {
  return records.empty() ? std::nullopt : std::optional(records.back());
}

Trainer::Trainer(Parts parts)
    : parts_(std::move(parts)),
      arithmetic_{parts_.job},
      per_lane_(static_cast<std::uint32_t>(parts_.job.config.batch.microbatches_per_lane())),
      whole_(parts_.plan),
      redo_(parts_.plan, parts_.transition ? parts_.transition->sums : std::vector<KeptSum>{}),
      program_(compile_program(parts_.plan, whole_, parts_.job.layout, parts_.job.config, parts_.self)),
      first_(compile_program(parts_.plan, redo_, parts_.job.layout, parts_.job.config, parts_.self)),
      partials_whole_(parts_.job.layout.layer_count()),
      partials_first_(parts_.job.layout.layer_count()) {
  if (parts_.transition) from_ = parts_.transition->step;
  const Plan& plan = parts_.plan;
  state_ = {plan.job, plan.lineage, plan.generation, from_, 0};
  losses_.resize(parts_.job.microbatches());
  for (const PlanRank& r : plan.ranks) parts_.carrier->peers.insert(r.rank);
  for (const ShardId s : program_.shards) reduced_[s];
  for (const ShardId s : program_.replicas) reduced_[s];
  KINTSUGI_ASSERT_MSG(first_.kept.empty() || parts_.left, "a transition counts on what its ranks reported");
  if (!parts_.left) return;
  for (const LayerSum& sum : first_.kept) {
    kept_.push_back(parts_.left->sums.at(sum));
    if (sum.layer.value + 1 < parts_.job.layout.layer_count()) continue;
    for (std::uint32_t m = sum.node.first * per_lane_; m < sum.node.end() * per_lane_; ++m) {
      losses_[m] = parts_.left->losses[m];
    }
  }
  if (parts_.left->step == in_progress()) begun_before_ = parts_.left->begun;
  parts_.left.reset();
}

Task Trainer::initialise() {
  co_await parts_.waiting.time(parts_.job.shape.apply * 2);
  for (const auto* held : {&program_.shards, &program_.replicas}) {
    for (const ShardId s : *held) {
      CopyMemory& copy = *parts_.held.copies.at(s);
      copy.state = initial_state(parts_.job.shape.seed, s);
      copy.version = {};
      copy.updates = 0;
      copy.digest = digest_of_state(copy.state);
      copy.applying = false;
      parts_.watch.copy_is_stable(parts_.self, copy);
    }
  }
  start({0}, 0);
  co_return Result<void>();
}

Task Trainer::take_over() {
  const Transition& transition = *parts_.transition;
  const std::optional<DecisionRecord> held = parts_.held.newest();
  if (transition.record && (!held || held->step < transition.record->step)) parts_.held.hold(*transition.record);
  KINTSUGI_CO_TRY(co_await move_copies());
  for (const auto* shards : {&program_.shards, &program_.replicas}) {
    for (const ShardId s : *shards) {
      const CopyMemory& copy = *parts_.held.copies.at(s);
      if (copy.applying || copy.version != transition.step || copy.updates != transition.updates) {
        parts_.watch.fail("a generation begins with every copy of its plan at one step");
      }
    }
  }
  start(transition.step, transition.updates);
  co_return Result<void>();
}

Task Trainer::move_copies() {
  const Transition& transition = *parts_.transition;
  const Outbox sent = make_outbox();
  for (const ShardMove& move : transition.moves) {
    if (move.to != parts_.self && (move.from != parts_.self || move.take_over)) continue;
    const auto held = parts_.held.copies.find(move.shard);
    if (held == parts_.held.copies.end()) {
      parts_.watch.fail("both ends of a move have memory for its copy");
      co_return Error{ErrorAction::cancelled, "no memory"};
    }
    CopyMemory& copy = *held->second;
    const MessageKey state_key{MessageKind::state, transition.step, move.shard.value, 0};
    if (move.to != parts_.self || move.take_over) {
      if (copy.applying || copy.version != transition.step) {
        parts_.watch.fail("what is sent or taken over is STABLE at the cut");
      }
    }
    if (move.to != parts_.self) {
      Payload payload;
      payload.sum.mark = copy.state;
      payload.digest = copy.digest;
      KINTSUGI_CO_TRY(send(move.to, state_key, std::move(payload), sent));
    } else if (!move.take_over) {
      copy.applying = true;
      const Result<Parcel> parcel = co_await parts_.waiting.parcel(*parts_.carrier, move.from, state_key);
      if (!parcel) co_return parcel.error();
      co_await parts_.waiting.time(parts_.job.shape.apply);
      copy.state = parcel->payload.sum.mark;
      copy.digest = parcel->payload.digest;
      copy.version = transition.step;
      copy.updates = transition.updates;
      copy.applying = false;
      parts_.watch.copy_is_stable(parts_.self, copy);
    }
  }
  co_return co_await parts_.waiting.released(*parts_.carrier, sent);
}

void Trainer::start(Step step, std::uint64_t updates) {
  state_.step = step;
  state_.updates = updates;
  started_ = true;
  for (const ShardId s : program_.shards) (*weights_)[s] = published(parts_.held.copies.at(s)->state);
}

Task Trainer::run(Step last, std::function<void(const DecisionRecord&)> on_step) {
  last_ = last;
  std::erase_if(parts_.held.copies, [&](const auto& c) { return !parts_.plan.shards[c.first.value].has(parts_.self); });
  if (state_.step < last) publish(state_.step);
  while (state_.step < last) {
    decided_.reset();
    KINTSUGI_CO_TRY(co_await run_step());
    if (KINTSUGI_MUTANT(applies_before_the_vote)) {
      const DecisionRecord guess = parts_.watch.oracle().record(in_progress());
      KINTSUGI_CO_TRY(co_await apply(guess, program_.shards));
    }
    KINTSUGI_CO_TRY(co_await vote(VotePhase::step));
    if (KINTSUGI_MUTANT(commits_without_acknowledgement)) {
      for (const Instruction& i : program_.instructions) {
        if (i.op == Opcode::receive_reduced) KINTSUGI_CO_TRY(co_await receive_reduced(i));
      }
    }
    state_ = advance(state_, *decided_);
    KINTSUGI_CO_TRY(co_await drain());
    const DecisionRecord record = *decided_;
    KINTSUGI_CO_TRY(co_await apply(record, program_.shards));
    if (state_.step < last && !record.next_generation) publish(state_.step);
    KINTSUGI_CO_TRY(co_await apply(record, program_.replicas));
    if (parts_.self == parts_.plan.root()) on_step(record);
    if (record.next_generation) co_return Result<void>();
  }
  co_return co_await vote(VotePhase::closing);
}

// Every peer has taken what was lent, before it is overwritten.
Task Trainer::drain() {
  KINTSUGI_CO_TRY(co_await parts_.waiting.released(*parts_.carrier, sent_));
  for (auto& [slot, outbox] : activations_sent_) {
    KINTSUGI_CO_TRY(co_await parts_.waiting.released(*parts_.carrier, outbox));
  }
  for (auto& [stage, outboxes] : gradients_sent_) {
    for (const Outbox& outbox : outboxes) {
      if (outbox) KINTSUGI_CO_TRY(co_await parts_.waiting.released(*parts_.carrier, outbox));
    }
  }
  co_return co_await parts_.waiting.released(*parts_.carrier, published_);
}

Task Trainer::run_step() {
  progress_step_ = in_progress();
  begun_.clear();
  done_.clear();
  const bool first = is_first_step();
  for (const Instruction& i : (first ? first_ : program_).instructions) {
    if (i.op == Opcode::forward || i.op == Opcode::backward) {
      if (i.op == Opcode::backward && i.layer.value != 0 && i.layer.value == program_.work(i.stage).layers.first) {
        const Outbox& outbox = gradients_sent_[i.stage][i.microbatch % 2];
        if (outbox) KINTSUGI_CO_TRY(co_await parts_.waiting.released(*parts_.carrier, outbox));
      }
      if (i.op == Opcode::forward && i.layer.value == program_.work(i.stage).layers.first) {
        begun_.insert({i.microbatch / per_lane_});
      }
      if (i.op == Opcode::backward) done_.erase({i.layer, i.buffer});
      co_await parts_.waiting.time(parts_.job.shape.layer);
      i.op == Opcode::forward ? forward(i) : backward(i);
      continue;
    }
    KINTSUGI_CO_TRY(co_await run_instruction(i));
  }
  co_return Result<void>();
}

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
