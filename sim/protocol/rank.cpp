#include "sim/protocol/rank.hpp"

#include <algorithm>
#include <utility>

#include "base/mutant.hpp"

namespace kintsugi::sim::protocol {

namespace {
constexpr std::size_t kMostLetters = 256;
constexpr Duration kExitGrace = milliseconds(50);
}  // namespace

Rank::Rank(const Context& context, RankId id, Pid pid)
    : context_(context),
      id_(id),
      pid_(pid),
      waiting_(context.processes, context.fabric, context.job.shape.step_budget) {
  waiting_.set_pid(pid);
}

void Rank::begin(LinkId link) {
  link_ = link;
  tell_node(message(say::RankUp{id_}));
}

void Rank::die() {
  waiting_.forget();
  work_.drop();
}

void Rank::tell_node(Sent message) {
  const std::uint64_t tag = message->what.index();
  context_.links.send(link_, pid_, tag, std::move(message));
}

void Rank::finish(const std::string& why) {
  if (std::exchange(ending_, true)) return;
  if (trainer_) trainer_->cancel({ErrorAction::cancelled, why});
  waiting_.look();
  context_.post(pid_, kExitGrace, kExit, [this] { context_.end_process(pid_, "exited with code 0"); });
}

void Rank::on_link_down(LinkId, const std::string& why) {
  finish("the node is gone: " + why);
}

void Rank::on_message(LinkId, const Sent& sent) {
  if (ending_) return;
  if (const auto* fence = std::get_if<say::Fence>(&sent->what)) return on_fence(*fence);
  if (const auto* intend = std::get_if<say::Intend>(&sent->what)) {
    if (trainer_ && trainer_->generation() < intend->generation) trainer_->intend(intend->generation);
    return;
  }
  if (const auto* stop = std::get_if<say::Stop>(&sent->what)) return finish(stop->why);
  if (std::holds_alternative<say::Prepare>(sent->what)) mailbox_.emplace_back(sent);
  if (std::holds_alternative<say::Segments>(sent->what)) mailbox_.emplace_back(SegmentsStage{sent});
  if (const auto* resume = std::get_if<say::Resume>(&sent->what)) mailbox_.emplace_back(TrainStage{resume->generation});
  KINTSUGI_ASSERT_MSG(mailbox_.size() <= kMostLetters, "a stage's mailbox has no bound");
  pump();
}

void Rank::on_fence(const say::Fence& fence) {
  if (fence.generation > fenced_) {
    fenced_ = fence.generation;
    if (trainer_ && trainer_->generation() < fenced_) trainer_->cancel({ErrorAction::cancelled, "fenced"});
    waiting_.look();
  }
  mailbox_.emplace_back(FenceStage{fence.generation, fence.known});
  pump();
}

void Rank::on_parcel(const Parcel& parcel) {
  if (!carrier_ || (parcel.generation != carrier_->generation && !KINTSUGI_MUTANT(accepts_stale_data))) return;
  context_.watch.accepted(id_, carrier_->generation, parcel.generation);
  if (!carrier_->inbox.emplace(std::pair(parcel.from, parcel.key), parcel).second) {
    carrier_->fail({ErrorAction::end_generation, "a peer sent a message twice"});
  }
  waiting_.look();
}

void Rank::on_peer_gone(RankId peer) {
  gone_.insert(peer);
  if (!carrier_ || !carrier_->peers.contains(peer)) return;
  carrier_->fail({ErrorAction::end_generation, "rank " + to_string(peer) + " is gone"});
  waiting_.look();
}

void Rank::let_go() {
  hangs_ = false;
  waiting_.let_go();
  pump();
}

void Rank::pump() {
  while (!hangs_ && !work_.is_running() && !mailbox_.empty()) {
    Letter letter = std::move(mailbox_.front());
    mailbox_.pop_front();
    work_ = handle(std::move(letter));
    work_.start();
  }
}

Task Rank::handle(Letter letter) {
  Result<void> outcome;
  if (const auto* wanted = std::get_if<FenceStage>(&letter)) outcome = fence(*wanted);
  if (const auto* prepare_message = std::get_if<PrepareStage>(&letter)) {
    outcome = co_await prepare(std::get<say::Prepare>((*prepare_message)->what));
  }
  if (const auto* segments = std::get_if<SegmentsStage>(&letter)) {
    outcome = co_await take_segments(std::get<say::Segments>(segments->message->what));
  }
  if (const auto* go = std::get_if<TrainStage>(&letter)) outcome = co_await train(go->generation);
  // A failure is of the generation in force. What a fence cancelled is no failure.
  if (!outcome && outcome.error().action != ErrorAction::cancelled && !ending_) {
    tell_node(message(say::Failed{id_, generation_, outcome.error()}));
  }
  // The next letter, once this one is over.
  context_.processes.post(pid_, context_.processes.now(), kTimer, id_.value, [this] { pump(); });
  co_return Result<void>();
}

Result<void> Rank::fence(const FenceStage& wanted) {
  if (wanted.generation <= generation_) return {};
  generation_ = wanted.generation;
  preparation_.reset();
  carrier_ = std::make_shared<Carrier>(Carrier{generation_, {}, {}, {}});
  RankReport report{id_, {}, true, {}, held_.newest()};
  if (KINTSUGI_MUTANT(forgets_the_record)) report.record.reset();
  if (trainer_) {
    report.copies = trainer_->inventory();
    report.sums = trainer_->sums();
  } else {
    for (const auto& [shard, copy] : held_.copies) {
      if (const auto stable = copy->report()) report.copies.push_back(*stable);
    }
    if (left_) {
      report.sums = {left_->step, {}, left_->begun};
      for (const auto& [sum, value] : left_->sums) report.sums.sums.push_back(sum);
    }
  }
  std::vector<DecisionRecord> records;
  for (const DecisionRecord& r : held_.records) {
    if (r.step > wanted.known) records.push_back(r);
  }
  tell_node(message(say::RankReported{generation_, std::move(report), std::move(records)}));
  return {};
}

const char* Rank::why_not(const say::Prepare& p) const {
  if (p.plan.generation != generation_) return "asked to prepare under another fence";
  return p.plan.has(id_) ? nullptr : "asked to prepare a plan without it";
}

Task Rank::prepare(const say::Prepare& wanted) {
  if (wanted.plan.generation < generation_) co_return Result<void>();  // overtaken by a fence
  if (const char* why = why_not(wanted)) co_return Error{ErrorAction::end_generation, why};
  context_.watch.prepared_by(id_, wanted.plan.generation, wanted.plan.digest());
  preparation_ = wanted;
  const std::optional<Transition>& transition = preparation_->transition;
  if (trainer_ && transition && transition->record) KINTSUGI_CO_TRY(co_await trainer_->complete(*transition->record));
  if (trainer_) left_ = trainer_->salvage(transition);
  trainer_.reset();
  ask_for_memory();
  co_return Result<void>();
}

void Rank::ask_for_memory() {
  std::map<ShardId, RankId> taken_over;
  if (preparation_->transition) {
    for (const ShardMove& move : preparation_->transition->moves) {
      if (move.take_over && move.to == id_) taken_over[move.shard] = move.from;
    }
  }
  say::NeedSegments need{generation_, {}};
  const Plan& plan = preparation_->plan;
  for (std::uint32_t s = 0; s < plan.shards.size(); ++s) {
    if (plan.shards[s].has(id_) && !held_.copies.contains({s})) need.copies[{s}];
  }
  for (const auto& [shard, from] : taken_over) need.copies[shard] = from;
  tell_node(message(std::move(need)));
}

Task Rank::take_segments(const say::Segments& segments) {
  if (segments.generation != generation_ || !preparation_) co_return Result<void>();  // overtaken by a fence
  if (trainer_) co_return Result<void>();
  held_.board = segments.board;
  if (!held_.records.empty()) held_.board->newest = held_.records.back();
  for (const auto& [shard, copy] : segments.copies) held_.copies[shard] = copy;
  if (std::any_of(gone_.begin(), gone_.end(),
                  [&](RankId r) { return preparation_->plan.has(r) && !context_.fabric.is_alive(r); })) {
    co_return Error{ErrorAction::end_generation, "cannot connect to a peer"};
  }
  trainer_ = std::make_unique<Trainer>(Trainer::Parts{context_.job, id_, preparation_->plan, preparation_->transition,
                                                      carrier_, held_, waiting_, context_.fabric, context_.watch,
                                                      std::exchange(left_, std::nullopt)});
  if (generation_ < fenced_) trainer_->cancel({ErrorAction::cancelled, "fenced"});
  if (preparation_->transition)
    KINTSUGI_CO_TRY(co_await trainer_->take_over());
  else
    KINTSUGI_CO_TRY(co_await trainer_->initialise());
  tell_node(message(say::Prepared{id_, generation_, trainer_->plan().digest(), trainer_->step()}));
  co_return Result<void>();
}

Task Rank::train(Generation generation) {
  if (generation != generation_) co_return Result<void>();  // overtaken by a fence
  if (!trainer_) {
    context_.watch.fail("a rank is told to train before it was prepared");
    co_return Result<void>();
  }
  const Step last{static_cast<std::uint64_t>(context_.job.config.steps)};
  const auto on_step = [this](const DecisionRecord& record) { tell_node(message(say::StepDone{record})); };
  KINTSUGI_CO_TRY(co_await trainer_->run(last, on_step));
  if (trainer_->ended_by_vote()) co_return Result<void>();  // the fence comes
  tell_node(message(say::Finished{id_, generation_, trainer_->step(), trainer_->final_digest()}));
  co_return Result<void>();
}

}  // namespace kintsugi::sim::protocol
