#include "sim/protocol/trainer.hpp"

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

}  // namespace kintsugi::sim::protocol
