#include "engine/pipeline/trainer.hpp"

#include <algorithm>

#include "engine/model/initialise.hpp"
#include "engine/pipeline/phase.hpp"
#include "engine/pipeline/state_moves.hpp"

namespace kintsugi {

namespace collectives = transport::collectives;

Trainer::Trainer(Parts parts)
    : parts_(std::move(parts)), gate_(parts_.boot_clock != nullptr ? *parts_.boot_clock : parts_.clock) {
  const Plan& plan = parts_.blueprint->plan;
  state_ = {plan.job, plan.lineage, plan.generation, {}, 0};
}

Trainer::~Trainer() {
  cancel({ErrorAction::cancelled, "the trainer ends"});
  stream_.reset();       // before what its work refers to
  parts_.peers.reset();  // before the arena that it lends
}

Result<std::unique_ptr<Trainer>> Trainer::create(Parts parts) {
  std::unique_ptr<Trainer> trainer(new Trainer(std::move(parts)));
  KINTSUGI_TRY(trainer->open_memory());
  return trainer;
}

Result<void> Trainer::open_memory() {
  RankBlueprint& b = *parts_.blueprint;
  kernels::Device& device = parts_.device;
  stream_ = device.create_stream();
  KINTSUGI_ASSERT(parts_.arena->view().bytes() >= b.arena_bytes);
  KINTSUGI_TRY_ASSIGN(local_, device.allocate(b.local_bytes));
  memory_ = lay_out_memory(b.program, b.layout, b.job, b.layers, parts_.arena->view().data, local_->view().data);
  communicator_ =
      std::make_unique<Communicator>(device, *stream_, *parts_.peers, b.program.rank, parts_.clock, parts_.wait_limit);
  shards_ = std::make_unique<ShardStates>(ShardStates::Parts{
      b.plan, b.layout, b.job, b.program, memory_, device, *stream_, *communicator_, parts_.state, parts_.incarnation});
  losses_.resize(b.program.microbatches);
  state_.step = b.from;
  KINTSUGI_ASSERT_MSG(b.first.kept.empty() || parts_.salvage, "a transition counts on what its ranks reported");
  if (parts_.salvage) KINTSUGI_TRY(take_sums());
  return {};
}

namespace {

// The microbatches of `stage` that this rank works, in the order of every schedule.
std::vector<MicrobatchSlot> feed(const RankBlueprint& b, StageId stage, const Redo& redo) {
  std::vector<MicrobatchSlot> work;
  const LaneRange lanes = b.plan.lanes_of(stage, b.program.rank);
  for (std::uint32_t lane = lanes.first; lane < lanes.end; ++lane) {
    if (!redo.runs_forward({lane})) continue;
    for (std::uint32_t m = 0; m < b.job.batch.microbatches_per_lane(); ++m) work.push_back({{lane}, m});
  }
  return work;
}

constexpr std::size_t kPrefetchDepth = 4;  // microbatches ready ahead of their use

}  // namespace

Result<void> Trainer::open_data() {
  const RankBlueprint& b = *parts_.blueprint;
  const StageId last{static_cast<std::uint32_t>(b.plan.stages.size() - 1)};
  const Redo whole(b.plan);
  std::vector<MicrobatchSlot> inputs = feed(b, {0}, whole);
  std::vector<MicrobatchSlot> targets = feed(b, last, whole);
  if (inputs.empty() && targets.empty()) return {};
  KINTSUGI_TRY_ASSIGN(auto file, TokenFile::open(b.job.data.train, b.job.data.tokens));
  KINTSUGI_TRY_ASSIGN(BatchReader reader,
                      BatchReader::make(std::move(file), b.job.batch, b.job.data.seed, b.job.model.vocabulary));
  const auto source = std::make_shared<const BatchReader>(std::move(reader));
  const std::lock_guard lock(feeders_mutex_);
  if (cancelled_) return *cancelled_;
  const auto open = [&](std::vector<MicrobatchSlot> work, StageId stage) -> std::unique_ptr<Prefetcher> {
    if (work.empty()) return nullptr;
    return std::make_unique<Prefetcher>(source, std::move(work), state_.step, kPrefetchDepth, feed(b, stage, b.redo));
  };
  tokens_ = open(std::move(inputs), {0});
  targets_ = open(std::move(targets), last);
  return {};
}

Result<void> Trainer::initialise() {
  KINTSUGI_TRY(shards_->create({0}, 0, [&](const Shard& shard, const ShardState& out) -> Result<void> {
    initialise_shard(parts_.blueprint->layout, shard, out.master);
    return {};
  }));
  return start({0}, 0);
}

Result<void> Trainer::load(const SavedState& saved) {
  const RankBlueprint& b = *parts_.blueprint;
  KINTSUGI_TRY(saved.check_job(job_identity(b.job)));
  KINTSUGI_TRY(saved.check_shards(b.layout.shards()));
  const StatePosition& at = saved.manifest().position;
  KINTSUGI_TRY(shards_->create(
      at.step, at.updates, [&](const Shard& shard, const ShardState& out) { return saved.read_shard(shard.id, out); }));
  return start(at.step, at.updates);
}

Result<void> Trainer::take_over(const Transition& transition) {
  const std::optional<DecisionRecord> held = record();
  if (transition.record && (!held || held->step < transition.record->step)) parts_.state.hold(*transition.record);
  constexpr std::int64_t kDigestBytes = sizeof(Digest);
  const kernels::View scratch = memory_.digests.slice(memory_.digests.count - kDigestBytes, kDigestBytes);
  StateMoves moves({parts_.blueprint->program.rank, parts_.state, parts_.device, *stream_, *communicator_, scratch,
                    parts_.incarnation});
  moves.enqueue(transition);
  KINTSUGI_TRY(wait_for_stream());
  shards_->adopt(transition.step, transition.updates);
  return start(transition.step, transition.updates);
}

Result<void> Trainer::start(Step step, std::uint64_t updates) {
  RankBlueprint& b = *parts_.blueprint;
  state_.step = step;
  state_.updates = updates;
  KINTSUGI_TRY(open_data());
  executor_ = std::make_unique<Executor>(Executor::Parts{b.plan, b.layout, b.job, b.program, b.first, b.redo, b.again,
                                                         memory_, b.layers, parts_.device, *stream_, *communicator_,
                                                         tokens_.get(), targets_.get()});
  shards_->enqueue_convert();
  return wait_for_stream();
}

// Every wait inside the stream has its own deadline, so the host needs none.
Result<void> Trainer::wait_for_stream() {
  return stream_->record().wait(kNoDeadline);
}

Result<void> Trainer::run(Step last, const OnStep& on_step, const OnStep& on_known) {
  const Plan& plan = parts_.blueprint->plan;
  last_ = last;
  // All members have what the plan gives them: the rest, which may have been a source for others, goes.
  parts_.state.keep_only(plan);
  if (state_.step < last) shards_->enqueue_publish(state_.step);
  while (state_.step < last) {
    const Instant began = parts_.clock.now();
    decided_.reset();
    executor_->enqueue_step({state_.step.value + 1});
    shards_->enqueue_norms();
    enqueue_phase(*stream_, StepPhase::vote);
    enqueue_vote();
    KINTSUGI_TRY(wait_for_stream());
    show_phase(ChangePhase::train);
    KINTSUGI_ASSERT(decided_.has_value());
    state_ = advance(state_, *decided_);
    executor_->drain_step();
    shards_->enqueue_drain();
    enqueue_phase(*stream_, StepPhase::apply);
    shards_->enqueue_apply(*decided_, shards_->primaries());
    if (state_.step < last && !decided_->next_generation) shards_->enqueue_publish(state_.step);
    shards_->enqueue_apply(*decided_, shards_->replicas());
    const double seconds = (parts_.clock.now() - began).seconds();
    step_seconds_ += seconds;
    const OnStep& told = parts_.blueprint->program.rank == plan.root() ? on_step : on_known;
    if (told) told(*decided_, seconds);
    if (decided_->next_generation) return wait_for_stream();
  }
  enqueue_closing_vote();
  return wait_for_stream();
}

void Trainer::intend(Generation next) {
  KINTSUGI_ASSERT(next > parts_.blueprint->plan.generation);
  const std::lock_guard lock(intent_mutex_);
  intent_ = next;
}

std::optional<Generation> Trainer::next_generation() const {
  return decided_ ? decided_->next_generation : std::nullopt;
}

Result<void> Trainer::complete(const DecisionRecord& record) {
  const std::optional<DecisionRecord> held = this->record();
  if (!held || held->step < record.step) parts_.state.hold(record);
  stream_->recover();
  const std::size_t count = shards_->replicas().end;
  const auto is_behind = [&](std::size_t i) {
    const ShardCopy& copy = shards_->copy(i);
    const std::optional<ShardVersion> at = copy.slot().stable();
    return at && at->version.value + 1 == record.step.value && has_gradient(copy.shard().id, record.step);
  };
  for (std::size_t first = 0; first < count; ++first) {
    std::size_t end = first;
    while (end < count && is_behind(end)) ++end;
    if (end == first) continue;
    shards_->enqueue_apply(record, {first, end});
    first = end;
  }
  KINTSUGI_TRY(wait_for_stream());
  if (state_.step.value + 1 == record.step.value) state_ = advance(state_, record);
  return {};
}

bool Trainer::has_gradient(ShardId shard, Step step) const {
  return executor_ != nullptr && executor_->reduced(shard) == step;
}

std::vector<CopyReport> Trainer::inventory() const {
  std::vector<CopyReport> copies = parts_.state.copies();
  for (CopyReport& copy : copies) {
    const bool in_plan = memory_.reduced.contains(copy.shard);
    copy.has_next_gradient = in_plan && has_gradient(copy.shard, {copy.version.value + 1});
  }
  return copies;
}

Contribution Trainer::contribution() {
  const RankBlueprint& b = *parts_.blueprint;
  Contribution own;
  own.shards = shards_->votes();
  own.replicas = shards_->acknowledgements();
  const std::uint32_t per_lane = static_cast<std::uint32_t>(b.job.batch.microbatches_per_lane());
  for (std::uint32_t lane = 0; lane < b.plan.lanes; ++lane) {
    if (teller({lane}) != b.program.rank) continue;
    double sum = 0;
    for (std::uint32_t m = 0; m < per_lane; ++m) sum += losses_[lane * per_lane + m];
    own.lanes.push_back({{lane}, sum});
  }
  if (state_.step.value + 1 < last_.value) {
    const std::lock_guard lock(intent_mutex_);
    own.ready_for = intent_;
  }
  return own;
}

Result<std::vector<std::byte>> Trainer::vote(
    std::uint32_t phase, const Contribution& own,
    const std::function<Result<std::vector<std::byte>>(const Contribution&)>& decide) {
  collectives::Vote ballot{{state_.step.value + 1}, phase, {}, {}};
  ballot.merge = [](std::span<const std::byte> a, std::span<const std::byte> b) -> Result<collectives::Bytes> {
    KINTSUGI_TRY_ASSIGN(Contribution left, decode_contribution(a));
    KINTSUGI_TRY_ASSIGN(const Contribution right, decode_contribution(b));
    return encode_contribution(merge(std::move(left), right));
  };
  ballot.decide = [&](std::span<const std::byte> all) -> Result<collectives::Bytes> {
    KINTSUGI_TRY_ASSIGN(const Contribution contribution, decode_contribution(all));
    return decide(contribution);
  };
  std::vector<RankId> ranks;
  for (const PlanRank& member : parts_.blueprint->plan.ranks) ranks.push_back(member.rank);
  KINTSUGI_TRY(gate_.pass());
  return collectives::vote(communicator_->peers(), collectives::ControlTree(std::move(ranks)),
                           parts_.blueprint->program.rank, encode_contribution(own), ballot, communicator_->deadline());
}

namespace {
constexpr std::uint32_t kStepPhase = 0;
constexpr std::uint32_t kClosingPhase = 1;
}  // namespace

void Trainer::enqueue_vote() {
  parts_.device.copy_to_host(*stream_, losses_.data(), memory_.losses);
  stream_->enqueue("vote", [this]() -> Result<void> {
    const RankBlueprint& b = *parts_.blueprint;
    const auto decide = [&](const Contribution& all) -> Result<std::vector<std::byte>> {
      KINTSUGI_TRY_ASSIGN(const DecisionRecord record, decide_step(state_, b.job, b.plan, all));
      parts_.state.hold(record);
      return encode_record(record);
    };
    KINTSUGI_TRY_ASSIGN(const std::vector<std::byte> bytes, vote(kStepPhase, contribution(), decide));
    KINTSUGI_TRY_ASSIGN(decided_, decode_record(bytes));
    parts_.state.hold(*decided_);
    show_phase(StepPhase::record);
    return {};
  });
}

void Trainer::enqueue_closing_vote() {
  stream_->enqueue("closing vote", [this]() -> Result<void> {
    const RankBlueprint& b = *parts_.blueprint;
    const auto decide = [&](const Contribution& all) -> Result<std::vector<std::byte>> {
      KINTSUGI_TRY_ASSIGN(const Digest digest, digest_of_contribution(state_, b.job, b.plan, all));
      const auto bytes = std::as_bytes(std::span(&digest, 1));
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    KINTSUGI_TRY_ASSIGN(const std::vector<std::byte> bytes, vote(kClosingPhase, contribution(), decide));
    if (bytes.size() != sizeof(Digest)) {
      return Error{ErrorAction::end_generation, "the closing vote gave no digest of the state"};
    }
    std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(&final_digest_, 1)).begin());
    return {};
  });
}

void Trainer::set_supervision(const Supervision& supervision) {
  gate_.set(supervision);
  communicator_->set_patient(supervision.lost);
}

void Trainer::cancel(const Error& why) {
  gate_.cancel(why);
  parts_.peers->cancel(why);
  const std::lock_guard lock(feeders_mutex_);
  if (!cancelled_) cancelled_ = why;
  // A feeder that waits for data ends with `cancelled`, too; a dead disk is left behind.
  const Instant soon = parts_.clock.now() + milliseconds(100);
  if (tokens_) static_cast<void>(tokens_->stop(soon).ok());
  if (targets_) static_cast<void>(targets_->stop(soon).ok());
}

StatePosition Trainer::position() const {
  const RankBlueprint& b = *parts_.blueprint;
  return {job_identity(b.job), state_.step, state_.updates,
          state_.step.value * static_cast<std::uint64_t>(b.job.batch.sequences)};
}

Trainer::Account& Trainer::Account::operator+=(const Account& later) {
  cells += later.cells;
  work += later.work;
  busy_seconds += later.busy_seconds;
  wait_seconds += later.wait_seconds;
  parameter_bytes = later.parameter_bytes;
  state_bytes = later.state_bytes;
  replica_bytes = later.replica_bytes;
  for (const auto& [peer, t] : later.traffic) {
    transport::PeerTraffic& sum = traffic[peer];
    sum.bytes_sent += t.bytes_sent;
    sum.bytes_received += t.bytes_received;
    sum.messages_sent += t.messages_sent;
    sum.messages_received += t.messages_received;
    sum.stale_dropped += t.stale_dropped;
  }
  return *this;
}

Trainer::Account Trainer::account() const {
  Account a;
  if (executor_) a.work = executor_->count();
  a.cells = a.work.backward / static_cast<std::uint64_t>(parts_.blueprint->job.batch.microbatches_per_lane());
  a.wait_seconds = communicator_->wait_seconds();
  a.busy_seconds = std::max(0.0, step_seconds_ - a.wait_seconds);
  a.parameter_bytes = memory_.parameter_bytes;
  a.state_bytes = shards_->bytes(shards_->primaries());
  a.replica_bytes = shards_->bytes(shards_->replicas());
  a.traffic = parts_.peers->traffic();
  return a;
}

}  // namespace kintsugi
