#include "actors/stage.hpp"

#include <fmt/format.h>

#include "actors/preparation.hpp"
#include "actors/rank_account.hpp"
#include "engine/control/recovery_codec.hpp"
#include "engine/pipeline/phase.hpp"
#include "engine/plan/plan_codec.hpp"
#include "engine/state/save.hpp"
#include "transport/routed.hpp"
#include "transport/shm/shm_carrier.hpp"
#include "transport/ucx/ucx_carrier.hpp"

namespace kintsugi::actors {

namespace {

namespace shm = transport::shm;

struct KeptOfStage {
  explicit KeptOfStage(StageParts p) : parts(std::move(p)), held(*parts.device, parts.identity.rank) {}

  StageParts parts;
  RankState held;         // beyond a generation
  Generation generation;  // the highest fence: nothing of a lower one is accepted
  Trainer::Account past;  // of trainers that are gone
};

class Stage final : public Body {
 public:
  Stage(Life life, const caf::actor& rank, KeptOfStage& kept)
      : Body(std::move(life)),
        rank_(rank),
        kept_(kept),
        parts_(kept.parts),
        held_(kept.held),
        generation_(kept.generation) {}
  ~Stage() override { drop_trainer(); }

  caf::behavior make_behavior() override {
    if (life().before && generation_ != Generation{}) {
      send(rank_,
           StageFailed{generation_, {ErrorAction::end_generation, "its stage crashed: " + life().before->why}, {}});
    }
    return {
        [this](const FenceStage& m) { attempt([&] { return fence(m); }); },
        [this](const PrepareStage& m) { attempt([&] { return prepare(m.message.get().getPrepare()); }); },
        [this](const StageSegments& m) { attempt([&] { return take_segments(m.message); }); },
        [this](const TrainStage& m) { attempt([&] { return train(m.generation); }); },
        [this](const SaveStage& m) { attempt([&] { return save(m.staging); }); },
    };
  }

  void on_end() override {
    drop_trainer();
    rank_ = nullptr;
  }

 private:
  // A failure is of the generation in force. What a fence cancelled is no failure.
  template <class Work>
  void attempt(Work work) {
    Result<void> outcome;
    const Result<void> decoded = guarded([&] { outcome = work(); });
    if (!decoded) outcome = decoded;
    if (outcome || outcome.error().action == ErrorAction::cancelled) return;
    show_phase(ChangePhase::suspect);
    send(rank_, StageFailed{generation_, outcome.error(), trainer_ ? trainer_->lost_peers() : std::set<RankId>{}});
  }

  template <class Fill>
  void tell_node(Fill fill) {
    send(rank_, StageFrame{std::make_shared<transport::Frame>(make_frame(fill))});
  }

  // The trainer of the generation before has stopped by now: the switch cancelled it. It stays until the next plan is
  // here, with the gradients it has.
  Result<void> fence(const FenceStage& wanted) {
    if (wanted.generation <= generation_) return {};
    show_phase(ChangePhase::fence);
    generation_ = wanted.generation;
    answered_ = true;
    fence_ = {parts_.identity.job, wanted.lineage, wanted.generation};
    preparation_.reset();
    blueprint_.reset();
    ring_fd_ = {};
    arena_fds_.clear();
    KINTSUGI_TRY_ASSIGN(ucx_, transport::ucx::UcxCarrier::open({parts_.identity.rank, fence_}, parts_.ucx));
    show_phase(ChangePhase::report);
    RankReport report{
        parts_.identity.rank, {}, true, trainer_ ? trainer_->inventory() : held_.copies(), held_.record()};
    if (trainer_ || salvage_) report.sums = trainer_ ? trainer_->sums() : salvage_->report();
    tell_node([&](schemas::Message::Builder m) {
      auto out = m.initRankReport();
      out.setJob(parts_.identity.job.value);
      write_generation(generation_, out.initGeneration());
      write_holding(report, out.initHolding());
      const std::vector<std::byte>& address = ucx_->address();
      out.setUcxAddress({reinterpret_cast<const kj::byte*>(address.data()), address.size()});
      const std::vector<DecisionRecord> records = held_.records_after(wanted.known);
      auto list = out.initRecords(static_cast<unsigned>(records.size()));
      for (unsigned i = 0; i < list.size(); ++i) write_record(records[i], list[i]);
    });
    show_phase(ChangePhase::plan);
    return {};
  }

  Result<void> prepare(schemas::Prepare::Reader in) {
    KINTSUGI_TRY_ASSIGN(Preparation preparation, read_preparation(in));
    const Plan& plan = preparation.plan;
    if (plan.generation < generation_ || !answered_) return {};  // overtaken by a fence, or of the incarnation before
    const RankId self = parts_.identity.rank;
    if (transport::Fence{plan.job, plan.lineage, plan.generation} != fence_ || !plan.has(self)) {
      return Error{ErrorAction::end_generation,
                   fmt::format("rank {} was asked to prepare a plan of generation {}, but is fenced for {}", self.value,
                               to_string(plan.generation), to_string(generation_))};
    }
    show_phase(ChangePhase::prepare);
    preparation_ = std::move(preparation);
    const std::optional<Transition>& transition = preparation_->transition;
    if (trainer_ && transition && transition->record) KINTSUGI_TRY(trainer_->complete(*transition->record));
    if (trainer_) salvage_ = trainer_->salvage(transition);
    drop_trainer();
    blueprint_ = RankBlueprint::make(preparation_->job, preparation_->plan, transition, self, parts_.device->ops());
    ask_for_memory();
    return {};
  }

  // For every copy that is to lie here and does not yet; those that gone ranks left, as their memory.
  void ask_for_memory() {
    std::map<ShardId, RankId> taken_over;
    if (preparation_->transition) {
      for (const ShardMove& move : preparation_->transition->moves) {
        if (move.take_over && move.to == parts_.identity.rank) taken_over[move.shard] = move.from;
      }
    }
    std::map<ShardId, std::optional<RankId>> lacking;
    for (const Shard& shard : blueprint_->copies()) {
      if (held_.find(shard.id) == nullptr) lacking[shard.id];
    }
    for (const auto& [shard, from] : taken_over) lacking[shard] = from;
    tell_node([&](schemas::Message::Builder m) {
      auto need = m.initNeedSegments();
      write_generation(generation_, need.initGeneration());
      need.setArenaBytes(blueprint_->arena_bytes);
      auto copies = need.initCopies(static_cast<unsigned>(lacking.size()));
      unsigned i = 0;
      for (const auto& [shard, from] : lacking) {
        copies[i].setShard(shard.value);
        copies[i].setBytes(RankState::copy_bytes(blueprint_->layout.shard(shard)));
        copies[i].setTakeOver(from.has_value());
        if (from) copies[i].setFrom(from->value);
        ++i;
      }
    });
  }

  // Collects the parts; the last one goes on.
  Result<void> take_segments(const ControlMessage& message) {
    const auto in = message.get().getSegments();
    if (read_generation(in.getGeneration()) != generation_ || !blueprint_) return {};  // likewise
    std::vector<FileDescriptor>& fds = message.descriptors();
    if (fds.size() != in.getParts().size()) {
      return Error{ErrorAction::end_generation, "the node sent memory without its descriptors"};
    }
    for (unsigned i = 0; i < in.getParts().size(); ++i) {
      const auto part = in.getParts()[i];
      switch (part.which()) {
        case schemas::Segment::RING: ring_fd_ = std::move(fds[i]); break;
        case schemas::Segment::BOARD: KINTSUGI_TRY(held_.set_board(fds[i].get())); break;
        case schemas::Segment::ARENA: arena_fds_[{part.getArena()}] = std::move(fds[i]); break;
        case schemas::Segment::COPY:
          KINTSUGI_TRY(held_.add(blueprint_->layout.shard({part.getCopy()}), fds[i].get()));
          break;
      }
    }
    return in.getLast() ? open_memory() : Result<void>{};
  }

  Result<void> open_memory() {
    const auto own = arena_fds_.find(parts_.identity.rank);
    if (own == arena_fds_.end()) return Error{ErrorAction::end_generation, "the node sent no arena for this rank"};
    KINTSUGI_TRY_ASSIGN(auto arena, parts_.device->map_shared(own->second.get(), 0, blueprint_->arena_bytes, true));
    KINTSUGI_TRY_ASSIGN(auto peers, open_peers(arena->view()));
    KINTSUGI_TRY_ASSIGN(
        trainer_, Trainer::create({std::move(blueprint_), *parts_.device, std::move(peers), *parts_.clock,
                                   std::move(arena), held_, preparation_->step_budget, parts_.identity.incarnation,
                                   std::move(salvage_), parts_.boot_clock}));
    parts_.trainer_switch->arm(trainer_.get(), generation_);
    KINTSUGI_TRY(make_state());
    tell_node([&](schemas::Message::Builder m) {
      auto prepared = m.initPrepared();
      prepared.setJob(parts_.identity.job.value);
      prepared.setRank(parts_.identity.rank.value);
      write_generation(generation_, prepared.initGeneration());
      write_digest(preparation_->plan.digest(), prepared.initPlanDigest());
      prepared.setStep(trainer_->step().value);
    });
    show_phase(ChangePhase::switching);
    return {};
  }

  Result<std::unique_ptr<transport::PointToPoint>> open_peers(const kernels::View& arena) {
    const RankId self = parts_.identity.rank;
    std::vector<RankId> local;
    for (const auto& [rank, fd] : arena_fds_) local.push_back(rank);
    std::vector<transport::Routed::Route> routes;
    std::map<RankId, std::vector<std::byte>> remote;
    for (const auto& [rank, address] : preparation_->ucx_addresses) {
      if (rank != self && (parts_.identity.ucx_only || !arena_fds_.contains(rank))) remote[rank] = address;
    }
    if (!parts_.identity.ucx_only && local.size() > 1) {
      KINTSUGI_TRY_ASSIGN(auto carrier, shm::ShmCarrier::open({self, local, fence_}, ring_fd_.get()));
      KINTSUGI_TRY_ASSIGN(std::byte* const own, host_address(arena));
      carrier->register_own_arena({own, arena.bytes()});
      transport::Routed::Route route;
      for (const auto& [rank, fd] : arena_fds_) {
        if (rank == self) continue;
        KINTSUGI_TRY(carrier->register_peer_arena(rank, fd.get()));
        route.peers.push_back(rank);
      }
      route.carrier = std::move(carrier);
      routes.push_back(std::move(route));
    }
    if (!remote.empty()) {
      KINTSUGI_TRY(ucx_->connect(remote));
      transport::Routed::Route route;
      for (const auto& [rank, address] : remote) route.peers.push_back(rank);
      route.carrier = std::move(ucx_);
      routes.push_back(std::move(route));
    }
    ucx_.reset();
    return std::unique_ptr<transport::PointToPoint>(std::make_unique<transport::Routed>(std::move(routes)));
  }

  // Only work on a stream may ask.
  Result<std::byte*> host_address(const kernels::View& view) {
    std::byte* address = nullptr;
    const auto stream = parts_.device->create_stream();
    stream->enqueue("host address", [&]() -> Result<void> {
      address = parts_.device->host_address(view);
      return {};
    });
    KINTSUGI_TRY(stream->synchronize(kNoDeadline));
    return address;
  }

  Result<void> make_state() {
    if (preparation_->transition) return trainer_->take_over(*preparation_->transition);
    if (preparation_->resume_directory.empty()) return trainer_->initialise();
    KINTSUGI_TRY_ASSIGN(const SavedState saved, SavedState::open(preparation_->resume_directory));
    return trainer_->load(saved);
  }

  Result<void> train(Generation generation) {
    if (generation != generation_ || !answered_) return {};  // likewise
    KINTSUGI_ASSERT_MSG(trainer_ != nullptr, "told to train before it was prepared");
    show_phase(ChangePhase::resume);
    // The root's word goes to the supervisor. Elsewhere the node keeps that of its first rank, for one that asks.
    const auto tell = [](schemas::StepDone::Builder step, const DecisionRecord& record, double seconds) {
      step.setJob(record.job.value);
      write_record(record, step.initRecord());
      step.setSeconds(seconds);
    };
    const auto on_step = [&](const DecisionRecord& record, double seconds) {
      tell_node([&](schemas::Message::Builder m) { tell(m.initStepDone(), record, seconds); });
    };
    Trainer::OnStep on_known;
    if (arena_fds_.begin()->first == parts_.identity.rank) {
      on_known = [&](const DecisionRecord& record, double seconds) {
        tell_node([&](schemas::Message::Builder m) { tell(m.initStepKnown(), record, seconds); });
      };
    }
    KINTSUGI_TRY(trainer_->run(preparation_->last, on_step, on_known));
    if (trainer_->next_generation()) return {};  // the fence comes
    tell_node([&](schemas::Message::Builder m) { write_account(m.initFinished()); });
    return {};
  }

  void drop_trainer() {
    if (!trainer_) return;
    parts_.trainer_switch->arm(nullptr, {});
    kept_.past += trainer_->account();
    trainer_.reset();
  }

  void write_account(schemas::RankAccount::Builder out) const {
    Trainer::Account account = kept_.past;
    account += trainer_->account();
    out.setJob(parts_.identity.job.value);
    out.setRank(parts_.identity.rank.value);
    write_generation(generation_, out.initGeneration());
    out.setPeakFlopsPerSecond(parts_.peak_flops);
    out.setStep(trainer_->step().value);
    write_digest(trainer_->final_digest(), out.initFinalDigest());
    write_work(account, out);
  }

  Result<void> save(const std::string& staging) {
    if (!answered_) return {};  // of the incarnation before
    KINTSUGI_ASSERT_MSG(trainer_ != nullptr, "told to save before it has state");
    const RankProgram& program = trainer_->blueprint().program;
    const ModelLayout& layout = trainer_->blueprint().layout;
    std::vector<SavedShard> saved;
    for (std::size_t i = 0; i < program.shards.size(); ++i) {
      KINTSUGI_TRY_ASSIGN(const std::vector<float> host, trainer_->shards().read(i));
      const std::span<const float> all(host);
      const std::size_t n = host.size() / 3;
      KINTSUGI_TRY_ASSIGN(SavedShard shard,
                          write_shard(staging, trainer_->position(), fence_.lineage, layout.shard(program.shards[i]),
                                      {all.subspan(0, n), all.subspan(n, n), all.subspan(2 * n, n)}));
      saved.push_back(shard);
    }
    tell_node([&](schemas::Message::Builder m) {
      auto out = m.initSaved();
      out.setJob(parts_.identity.job.value);
      out.setRank(parts_.identity.rank.value);
      write_generation(generation_, out.initGeneration());
      auto shards = out.initShards(static_cast<unsigned>(saved.size()));
      for (unsigned i = 0; i < shards.size(); ++i) {
        shards[i].setShard(saved[i].shard.id.value);
        write_digest(saved[i].digest, shards[i].initDigest());
      }
    });
    return {};
  }

  caf::actor rank_;
  KeptOfStage& kept_;
  StageParts& parts_;
  RankState& held_;
  Generation& generation_;
  bool answered_ = false;  // a fence, by this incarnation: what was meant for the one before is not for it
  transport::Fence fence_;
  std::unique_ptr<transport::ucx::UcxCarrier> ucx_;  // of this generation, until it is connected
  // Of this generation, as far as it has come.
  std::optional<Preparation> preparation_;
  std::unique_ptr<RankBlueprint> blueprint_;
  FileDescriptor ring_fd_;
  std::map<RankId, FileDescriptor> arena_fds_;  // of this node's ranks
  std::unique_ptr<Salvage> salvage_;            // of the trainer before, until there is one
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace

caf::actor spawn_stage(Place place, StageParts parts) {
  const std::shared_ptr<TrainerSwitch> trainer_switch = parts.trainer_switch;
  place.interrupt = [trainer_switch] { trainer_switch->interrupt({ErrorAction::cancelled, "its stage is to crash"}); };
  auto kept = std::make_shared<KeptOfStage>(std::move(parts));
  const caf::actor rank = place.parent;
  return spawn_detached(std::move(place),
                        [kept, rank](Life life) { return std::make_unique<Stage>(std::move(life), rank, *kept); });
}

}  // namespace kintsugi::actors
