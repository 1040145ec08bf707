#include "actors/stage.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <caf/send.hpp>

#include <fstream>

#include "engine/plan/plan_codec.hpp"
#include "engine/state/save.hpp"
#include "transport/routed.hpp"
#include "transport/shm/shm_carrier.hpp"

namespace kintsugi::actors {

void CancelSwitch::arm(Trainer* trainer) {
  const std::lock_guard lock(mutex_);
  trainer_ = trainer;
  if (trainer_ != nullptr && reason_) trainer_->cancel(*reason_);
}

void CancelSwitch::cancel(const Error& why) {
  const std::lock_guard lock(mutex_);
  if (!reason_) reason_ = why;
  if (trainer_ != nullptr) trainer_->cancel(*reason_);
}

std::optional<Error> CancelSwitch::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

namespace {

namespace shm = transport::shm;

// High-water mark of the resident set, bytes; 0 if the kernel does not tell.
std::uint64_t peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    std::uint64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  return 0;
}

// What a Prepare asks for, decoded.
struct Preparation {
  JobConfig job;
  Plan plan;
  std::vector<std::vector<std::byte>> ucx_addresses;  // by rank
  Step last;
  std::string resume_directory;
  Duration step_budget;
};

Result<Preparation> read_preparation(schemas::Prepare::Reader in) {
  Preparation p;
  KINTSUGI_TRY_ASSIGN(p.job, parse_job(in.getJobFile().cStr(), "the job as sent by the supervisor"));
  KINTSUGI_TRY_ASSIGN(p.plan, read_plan(in.getPlan()));
  for (const auto address : in.getUcxAddresses()) {
    const auto* bytes = reinterpret_cast<const std::byte*>(address.begin());
    p.ucx_addresses.emplace_back(bytes, bytes + address.size());
  }
  if (p.ucx_addresses.size() != p.plan.rank_count()) {
    return Error{ErrorAction::fail_link, "a plan arrived without an address for each of its ranks"};
  }
  p.last = {in.getSteps()};
  p.resume_directory = in.getResumeDirectory().cStr();
  p.step_budget = milliseconds(static_cast<std::int64_t>(in.getStepBudgetMs()));
  return p;
}

class StageActor final : public caf::event_based_actor {
 public:
  StageActor(caf::actor_config& config, std::shared_ptr<StageParts> parts)
      : caf::event_based_actor(config), parts_(std::move(*parts)) {}

  const char* name() const override { return "stage"; }

  caf::behavior make_behavior() override {
    return {
        [this](const PrepareStage& m) { attempt([&] { return prepare(m.message.get().getPrepare()); }); },
        [this](const StageSegments& m) { attempt([&] { return take_segments(m.message); }); },
        [this](const TrainStage&) { attempt([&] { return train(); }); },
        [this](const SaveStage& m) { attempt([&] { return save(m.staging); }); },
    };
  }

  void on_exit() override {
    parts_.cancel->arm(nullptr);
    trainer_.reset();
    parts_.rank = nullptr;
  }

 private:
  // One wrong step fails the rank, once, with the first error.
  template <class Work>
  void attempt(Work work) {
    Result<void> outcome;
    const Result<void> decoded = guarded([&] { outcome = work(); });
    if (!decoded) outcome = decoded;
    if (!outcome) send(parts_.rank, StageFailed{outcome.error()});
  }

  template <class Fill>
  void tell_node(Fill fill) {
    send(parts_.rank, StageFrame{std::make_shared<transport::Frame>(make_frame(fill))});
  }

  Result<void> prepare(schemas::Prepare::Reader in) {
    KINTSUGI_TRY_ASSIGN(preparation_, read_preparation(in));
    const RankIdentity& id = parts_.identity;
    const Plan& plan = preparation_->plan;
    if (transport::Fence{plan.job, plan.lineage, plan.generation} != id.fence || id.rank.value >= plan.rank_count()) {
      return Error{ErrorAction::end_generation,
                   fmt::format("rank {} was asked to prepare a plan of generation {}, but opened its endpoints for {}",
                               id.rank.value, to_string(plan.generation), to_string(id.fence.generation))};
    }
    blueprint_ = RankBlueprint::make(preparation_->job, plan, id.rank, parts_.device->ops());
    tell_node([&](schemas::Message::Builder m) {
      auto need = m.initNeedSegments();
      need.setArenaBytes(blueprint_->arena_bytes);
      need.setStateBytes(blueprint_->state_bytes);
    });
    return {};
  }

  // Collects the parts; the last one goes on.
  Result<void> take_segments(const ControlMessage& message) {
    const auto in = message.get().getSegments();
    std::vector<FileDescriptor>& fds = message.descriptors();
    const std::size_t lead = in.getLeads() ? 2 : 0;
    if (!blueprint_ || fds.size() != in.getArenas().size() + lead) {
      return Error{ErrorAction::end_generation, "the node sent its memory segments out of turn"};
    }
    if (in.getLeads()) {
      ring_fd_ = std::move(fds[0]);
      state_fd_ = std::move(fds[1]);
    }
    for (unsigned i = 0; i < in.getArenas().size(); ++i) arena_fds_[{in.getArenas()[i]}] = std::move(fds[lead + i]);
    const bool whole = ring_fd_.valid() && arena_fds_.size() == in.getRanks().size();
    return whole ? open_memory() : Result<void>{};
  }

  Result<void> open_memory() {
    KINTSUGI_TRY_ASSIGN(state_, shm::Mapping::map(state_fd_.get(), shm::Access::read_write));
    const auto own = arena_fds_.find(parts_.identity.rank);
    if (own == arena_fds_.end()) return Error{ErrorAction::end_generation, "the node sent no arena for this rank"};
    RankSegments segments;
    segments.state_bytes = state_.bytes();
    KINTSUGI_TRY_ASSIGN(segments.arena, parts_.device->map_shared(own->second.get(), 0, blueprint_->arena_bytes, true));
    KINTSUGI_TRY_ASSIGN(segments.state, parts_.device->map_shared(state_fd_.get(), 0, blueprint_->state_bytes, true));
    KINTSUGI_TRY_ASSIGN(auto peers, open_peers(segments.arena->view()));
    KINTSUGI_TRY_ASSIGN(trainer_,
                        Trainer::create({std::move(blueprint_), *parts_.device, std::move(peers), *parts_.clock,
                                         std::move(segments), preparation_->step_budget, parts_.identity.incarnation}));
    parts_.cancel->arm(trainer_.get());
    KINTSUGI_TRY(make_state());
    peak_flops_ = parts_.measure_peak();
    tell_node([&](schemas::Message::Builder m) {
      auto prepared = m.initPrepared();
      prepared.setJob(parts_.identity.job.value);
      prepared.setRank(parts_.identity.rank.value);
      write_generation(preparation_->plan.generation, prepared.initGeneration());
      write_digest(preparation_->plan.digest(), prepared.initPlanDigest());
      prepared.setStep(trainer_->step().value);
    });
    return {};
  }

  Result<std::unique_ptr<transport::PointToPoint>> open_peers(const kernels::View& arena) {
    const RankId self = parts_.identity.rank;
    std::vector<RankId> local;
    for (const auto& [rank, fd] : arena_fds_) local.push_back(rank);
    std::vector<transport::Routed::Route> routes;
    std::map<RankId, std::vector<std::byte>> remote;
    for (std::uint32_t r = 0; r < preparation_->plan.rank_count(); ++r) {
      const bool here = arena_fds_.contains({r});
      if (RankId{r} != self && (parts_.identity.ucx_only || !here)) remote[{r}] = preparation_->ucx_addresses[r];
    }
    if (!parts_.identity.ucx_only && local.size() > 1) {
      KINTSUGI_TRY_ASSIGN(auto carrier, shm::ShmCarrier::open({self, local, parts_.identity.fence}, ring_fd_.get()));
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
      KINTSUGI_TRY(parts_.ucx->connect(remote));
      transport::Routed::Route route;
      for (const auto& [rank, address] : remote) route.peers.push_back(rank);
      route.carrier = std::move(parts_.ucx);
      routes.push_back(std::move(route));
    }
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
    if (preparation_->resume_directory.empty()) return trainer_->initialise();
    KINTSUGI_TRY_ASSIGN(const SavedState saved, SavedState::open(preparation_->resume_directory));
    return trainer_->load(saved);
  }

  Result<void> train() {
    KINTSUGI_ASSERT_MSG(trainer_ != nullptr, "told to train before it was prepared");
    const auto on_step = [&](const DecisionRecord& record, double seconds) {
      tell_node([&](schemas::Message::Builder m) {
        auto step = m.initStepDone();
        step.setJob(record.job.value);
        write_record(record, step.initRecord());
        step.setSeconds(seconds);
      });
    };
    KINTSUGI_TRY(trainer_->run(preparation_->last, on_step));
    tell_node([&](schemas::Message::Builder m) { write_account(m.initFinished()); });
    return {};
  }

  void write_account(schemas::RankAccount::Builder out) const {
    const Trainer::Account a = trainer_->account();
    out.setJob(parts_.identity.job.value);
    out.setRank(parts_.identity.rank.value);
    out.setCells(a.cells);
    out.setMicrobatches(a.work.microbatches);
    out.setFlops(a.work.flops);
    out.setParameterBytes(a.parameter_bytes);
    out.setStateBytes(a.state_bytes);
    out.setComputeSeconds(a.busy_seconds);
    out.setWaitSeconds(a.wait_seconds);
    out.setPeakMemoryBytes(peak_memory_bytes());
    out.setPeakFlopsPerSecond(peak_flops_);
    out.setStep(trainer_->step().value);
    write_digest(trainer_->final_digest(), out.initFinalDigest());
    auto traffic = out.initTraffic(static_cast<unsigned>(a.traffic.size()));
    unsigned i = 0;
    std::uint64_t sent = 0, received = 0;
    for (const auto& [peer, t] : a.traffic) {
      traffic[i].setPeer(peer.value);
      traffic[i].setBytesSent(t.bytes_sent);
      traffic[i].setBytesReceived(t.bytes_received);
      sent += t.bytes_sent;
      received += t.bytes_received;
      ++i;
    }
    out.setBytesSent(sent);
    out.setBytesReceived(received);
  }

  Result<void> save(const std::string& staging) {
    KINTSUGI_ASSERT_MSG(trainer_ != nullptr, "told to save before it has state");
    const RankProgram& program = trainer_->blueprint().program;
    const ModelLayout& layout = trainer_->blueprint().layout;
    std::vector<SavedShard> saved;
    for (std::size_t i = 0; i < program.shards.size(); ++i) {
      KINTSUGI_TRY_ASSIGN(const std::vector<float> host, trainer_->shards().read(i));
      const std::span<const float> all(host);
      const std::size_t n = host.size() / 3;
      KINTSUGI_TRY_ASSIGN(SavedShard shard, write_shard(staging, trainer_->position(), parts_.identity.fence.lineage,
                                                        layout.shard(program.shards[i]),
                                                        {all.subspan(0, n), all.subspan(n, n), all.subspan(2 * n, n)}));
      saved.push_back(shard);
    }
    tell_node([&](schemas::Message::Builder m) {
      auto out = m.initSaved();
      out.setJob(parts_.identity.job.value);
      out.setRank(parts_.identity.rank.value);
      auto shards = out.initShards(static_cast<unsigned>(saved.size()));
      for (unsigned i = 0; i < shards.size(); ++i) {
        shards[i].setShard(saved[i].shard.id.value);
        write_digest(saved[i].digest, shards[i].initDigest());
      }
    });
    return {};
  }

  StageParts parts_;
  std::optional<Preparation> preparation_;
  std::unique_ptr<RankBlueprint> blueprint_;
  FileDescriptor ring_fd_;
  FileDescriptor state_fd_;
  std::map<RankId, FileDescriptor> arena_fds_;  // of this node's ranks
  shm::Mapping state_;
  std::unique_ptr<Trainer> trainer_;
  double peak_flops_ = 0;
};

}  // namespace

caf::actor spawn_stage(caf::actor_system& system, StageParts parts) {
  return system.spawn<StageActor, caf::detached>(std::make_shared<StageParts>(std::move(parts)));
}

}  // namespace kintsugi::actors
