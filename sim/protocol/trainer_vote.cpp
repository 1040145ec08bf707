// Trainer: the vote of a step, what follows from its record, and what is left when a generation ends.
#include <algorithm>

#include "base/mutant.hpp"
#include "sim/protocol/trainer.hpp"
#include "transport/collectives/control_tree.hpp"

namespace kintsugi::sim::protocol {

using transport::MessageKey;
using transport::MessageKind;

RankId Trainer::teller(LaneId lane) const {
  const StageId last{static_cast<std::uint32_t>(parts_.plan.stages.size() - 1)};
  std::optional<RankId> keeper;
  if (is_first_step()) keeper = redo_.keeper({parts_.plan.stages.back().layers.end - 1}, lane);
  return keeper.value_or(parts_.plan.rank_of(last, lane));
}

Contribution Trainer::contribution() const {
  Contribution own;
  for (const ShardId s : program_.shards) {
    const double norm = arithmetic_.squared_norm(s, reduced_.at(s).mark, in_progress());
    own.shards.push_back({s, norm, parts_.held.copies.at(s)->digest});
  }
  for (const ShardId s : program_.replicas) {
    own.replicas.push_back({s, parts_.self, parts_.held.copies.at(s)->digest});
  }
  for (std::uint32_t lane = 0; lane < parts_.plan.lanes; ++lane) {
    if (teller({lane}) != parts_.self) continue;
    double sum = 0;
    for (std::uint32_t m = 0; m < per_lane_; ++m) sum += losses_[lane * per_lane_ + m];
    own.lanes.push_back({{lane}, sum});
  }
  if (in_progress() < last_) own.ready_for = intent_;
  return own;
}

Result<void> Trainer::decide(VotePhase phase, const Contribution& all, Payload& out) {
  if (phase == VotePhase::step) {
    KINTSUGI_TRY_ASSIGN(const DecisionRecord record, decide_step(state_, parts_.job.config, parts_.plan, all));
    parts_.watch.record_made(record);
    parts_.held.hold(record);
    out.record = std::make_shared<const DecisionRecord>(record);
    return {};
  }
  KINTSUGI_TRY_ASSIGN(out.digest, digest_of_contribution(state_, parts_.job.config, parts_.plan, all));
  return {};
}

// As transport/collectives/vote.cpp.
Task Trainer::vote(VotePhase phase) {
  std::vector<RankId> ranks;
  for (const PlanRank& member : parts_.plan.ranks) ranks.push_back(member.rank);
  const transport::collectives::ControlTree tree(std::move(ranks));
  const std::vector<RankId> children = tree.children(parts_.self);
  const MessageKey up = key(MessageKind::contribution, static_cast<std::uint32_t>(phase), 0),
                   down = key(MessageKind::decision, static_cast<std::uint32_t>(phase), 0);
  Contribution merged = contribution();
  for (const RankId child : children) {
    const Result<Parcel> got = co_await parts_.waiting.parcel(*parts_.carrier, child, up);
    if (!got) co_return got.error();
    merged = merge(std::move(merged), *got->payload.votes);
  }
  Payload decision;
  const Outbox sent = make_outbox();
  if (const auto parent = tree.parent(parts_.self)) {
    Payload own;
    own.votes = std::make_shared<const Contribution>(std::move(merged));
    KINTSUGI_CO_TRY(send(*parent, up, std::move(own), sent));
    const Result<Parcel> got = co_await parts_.waiting.parcel(*parts_.carrier, *parent, down);
    if (!got) co_return got.error();
    decision = got->payload;
  } else {
    KINTSUGI_CO_TRY(decide(phase, merged, decision));
  }
  for (const RankId child : children) KINTSUGI_CO_TRY(send(child, down, decision, sent));
  KINTSUGI_CO_TRY(co_await parts_.waiting.released(*parts_.carrier, sent));
  if (phase != VotePhase::step) {
    final_digest_ = decision.digest;
    co_return Result<void>();
  }
  decided_ = *decision.record;
  parts_.held.hold(*decided_);
  co_return Result<void>();
}

// It runs whole or not at all, whatever is cancelled meanwhile; only the end of the process finds it half done.
Task Trainer::apply(DecisionRecord record, std::vector<ShardId> which) {
  if (which.empty()) co_return Result<void>();
  for (const ShardId s : which) parts_.held.copies.at(s)->applying = true;
  co_await parts_.waiting.time(parts_.job.shape.apply);
  for (const ShardId s : which) {
    CopyMemory& copy = *parts_.held.copies.at(s);
    copy.state = next_state(copy.state, reduced_.at(s).mark, record);
    copy.version = record.step;
    copy.updates = record.updates;
    copy.digest = digest_of_state(copy.state);
    copy.applying = false;
    parts_.watch.copy_is_stable(parts_.self, copy);
    if (parts_.plan.primary_of(s) == parts_.self) (*weights_)[s] = published(copy.state);
  }
  co_return Result<void>();
}

void Trainer::publish(Step version) {
  for (const ShardId s : program_.shards) {
    for (const RankId to : ranks_using(parts_.plan, parts_.job.layout.group(parts_.job.layout.shard(s).group))) {
      if (to == parts_.self) continue;
      Payload payload;
      payload.sum.mark = weights_->at(s);
      payload.lent_at = std::shared_ptr<const Mark>(weights_, &weights_->at(s));
      // What cannot be sent shows at the next wait.
      static_cast<void>(send(to, {MessageKind::weights, version, s.value, 0}, std::move(payload), published_).ok());
    }
  }
}

bool Trainer::has_gradient(ShardId shard, Step step) const {
  const auto at = reduced_.find(shard);
  return started_ && at != reduced_.end() && at->second.step == step;
}

std::vector<ShardId> Trainer::stable_copies_behind(const DecisionRecord& record) const {
  std::vector<ShardId> behind;
  for (const auto* shards : {&program_.shards, &program_.replicas}) {
    for (const ShardId s : *shards) {
      const auto at = parts_.held.copies.find(s);
      if (at == parts_.held.copies.end() || at->second->applying) continue;
      const bool is_behind = at->second->version.value + 1 == record.step.value;
      if ((is_behind && has_gradient(s, record.step)) ||
          (KINTSUGI_MUTANT(applies_twice) && has_gradient(s, record.step))) {
        behind.push_back(s);
      }
    }
  }
  return behind;
}

Task Trainer::complete(DecisionRecord record) {
  const std::optional<DecisionRecord> held = parts_.held.newest();
  if (!held || held->step < record.step) parts_.held.hold(record);
  KINTSUGI_CO_TRY(co_await apply(record, stable_copies_behind(record)));
  if (state_.step.value + 1 == record.step.value) state_ = advance(state_, record);
  co_return Result<void>();
}

std::vector<CopyReport> Trainer::inventory() const {
  std::vector<CopyReport> copies;
  for (const auto& [shard, copy] : parts_.held.copies) {
    std::optional<CopyReport> report = copy->report();
    if (!report) continue;
    report->has_next_gradient = has_gradient(shard, {report->version.value + 1});
    copies.push_back(*report);
  }
  return copies;
}

SumReport Trainer::sums() const {
  SumReport report{in_progress(), {}, {}};
  if (is_first_step()) report.begun = begun_before_;
  if (started_ && progress_step_ == in_progress()) report.begun.assign(begun_.begin(), begun_.end());
  for (const auto& [sum, value] : whole_sums()) report.sums.push_back(sum);
  return report;
}

std::map<LayerSum, Sum> Trainer::whole_sums() const {
  std::map<LayerSum, Sum> sums;
  if (program_.alone) return sums;
  for (std::size_t i = 0; is_first_step() && i < first_.kept.size(); ++i) sums.emplace(first_.kept[i], kept_[i]);
  if (!started_ || progress_step_ != in_progress()) return sums;
  for (const auto& [place, node] : done_) sums.emplace(LayerSum{place.first, node}, gradients_.at(place));
  return sums;
}

SumsLeft Trainer::salvage(const std::optional<Transition>& next) const {
  SumsLeft left{in_progress(), sums().begun, {}, {}};
  const auto is_own = [&](const KeptSum& k) { return k.rank == parts_.self; };
  if (!next || std::none_of(next->sums.begin(), next->sums.end(), is_own)) return left;
  left.sums = whole_sums();
  left.losses = losses_;
  return left;
}

}  // namespace kintsugi::sim::protocol
