#include "actors/rank.hpp"

#include <sys/prctl.h>
#include <unistd.h>
#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include <csignal>
#include <cstdlib>

#include "kernels/cpu/cpu_device.hpp"
#include "kernels/cpu/peak.hpp"
#include "transport/link/link_service.hpp"

namespace kintsugi::actors {

namespace {

struct RankParts {
  RankIdentity identity;
  std::string kernel_variant;
  std::shared_ptr<TrainerSwitch> trainer_switch;
  std::function<caf::actor(caf::actor rank)> make_stage;
  Event done;  // signalled when the process may end
  Logger logger;
};

// Owns the link to the node and answers its pings, so that a rank whose event side is stuck is noticed. Everything that
// may block is the stage's.
class RankActor final : public caf::event_based_actor {
 public:
  RankActor(caf::actor_config& config, std::shared_ptr<RankParts> parts)
      : caf::event_based_actor(config), parts_(std::move(*parts)) {}

  const char* name() const override { return "rank"; }

  caf::behavior make_behavior() override {
    stage_ = parts_.make_stage(this);
    monitor(stage_);
    set_down_handler([this](caf::down_msg& down) { finish("the stage ended: " + to_string(down.reason)); });
    return {
        [this](const LinkUp& up) {
          link_ = up.link;
          say_hello();
        },
        [this](const LinkFrame& m) { on_frame(m); },
        [](const LinkPing& ping) { ping.link->pong(ping.id); },
        [this](const LinkDown& m) { finish("the node is gone: " + m.why.message); },
        [this](const StageFrame& m) { to_node(std::move(*m.frame)); },
        [this](const StageFailed& m) { on_failure(m); },
    };
  }

  void on_exit() override {
    stage_ = nullptr;
    link_ = nullptr;
  }

 private:
  void say_hello() {
    to_node(make_frame([&](schemas::Message::Builder m) {
      auto up = m.initRankUp();
      up.setJob(parts_.identity.job.value);
      up.setRank(parts_.identity.rank.value);
      up.setPid(static_cast<std::uint32_t>(::getpid()));
      up.setIncarnation(parts_.identity.incarnation.value);
      up.setKernelVariant(parts_.kernel_variant);
    }));
  }

  void on_frame(const LinkFrame& m) {
    const Result<void> read = guarded([&] {
      switch (m.message.which()) {
        case schemas::Message::FENCE: return on_fence(m.message.get().getFence());
        case schemas::Message::INTEND:
          return parts_.trainer_switch->intend(read_generation(m.message.get().getIntend().getGeneration()));
        case schemas::Message::SUPERVISION: {
          const auto in = m.message.get().getSupervision();
          return parts_.trainer_switch->set_supervision({in.getLost(), Instant{in.getParkAtNs()}});
        }
        case schemas::Message::PREPARE: return send(stage_, PrepareStage{m.message});
        case schemas::Message::SEGMENTS: return send(stage_, StageSegments{m.message});
        case schemas::Message::RESUME:
          return send(stage_, TrainStage{read_generation(m.message.get().getResume().getGeneration())});
        case schemas::Message::SAVE: return send(stage_, SaveStage{m.message.get().getSave().getDirectory().cStr()});
        case schemas::Message::STOP: return finish(m.message.get().getStop().getWhy().cStr());
        default:
          parts_.logger.warning("a message that no rank understands", {{"kind", std::int64_t{m.message.which()}}});
      }
    });
    if (!read) finish(read.error().message);
  }

  // The trainer is cancelled from here, at once; the stage hears of it when it is idle again.
  void on_fence(schemas::Fence::Reader in) {
    const Generation generation = read_generation(in.getGeneration());
    parts_.trainer_switch->fence(generation, {ErrorAction::cancelled, in.getWhy().cStr()});
    send(stage_, FenceStage{{in.getLineage()}, generation, {in.getKnownStep()}});
  }

  void on_failure(const StageFailed& failure) {
    // A process that was told to end has no news for the node.
    if (parts_.trainer_switch->ended()) return;
    const Error& error = failure.error;
    parts_.logger.error("the rank failed", {{"why", error.message}});
    to_node(make_frame([&](schemas::Message::Builder m) {
      auto failed = m.initFailed();
      failed.setJob(parts_.identity.job.value);
      failed.setRank(parts_.identity.rank.value);
      failed.setAction(static_cast<std::uint8_t>(error.action));
      failed.setMessage(error.message);
      write_generation(failure.generation, failed.initGeneration());
      auto lost = failed.initLostPeers(static_cast<unsigned>(failure.lost_peers.size()));
      unsigned i = 0;
      for (const RankId peer : failure.lost_peers) lost.set(i++, peer.value);
    }));
  }

  void to_node(transport::Frame frame) {
    if (!link_) return;
    if (const Result<void> sent = link_->send(std::move(frame)); !sent) finish(sent.error().message);
  }

  void finish(const std::string& why) {
    parts_.logger.info("the rank ends", {{"why", why}});
    parts_.trainer_switch->end({ErrorAction::cancelled, why});
    parts_.done.signal();
  }

  RankParts parts_;
  caf::actor stage_;
  std::shared_ptr<transport::Link> link_;
};

// What a rank may take to leave after it was told to.
constexpr Duration kExitGrace = milliseconds(500);

// No actor, library or destructor may keep the process: the node owns all memory that matters.
[[noreturn]] void leave(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace

int run_rank_process(const RankProcessOptions& options) {
  // The node owns this process: it dies with it, and a terminal's Ctrl-C is the supervisor's to handle.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  // UCX took these over while it was loaded; a crash is told by the exit status, not by a transport's handlers.
  for (const int fatal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) ::signal(fatal, SIG_DFL);
  const SteadyClock clock;
  const BootClock boot_clock;
  const RankIdentity& id = options.identity;
  const std::unique_ptr<kernels::Device> device = kernels::cpu::make_cpu_device(id.threads);
  auto context = transport::ucx::UcxContext::create(id.interface);
  if (!context) {
    options.logger.error("cannot open UCX", {{"why", context.error().message}});
    return 1;
  }
  // Before it says hello: a newcomer's measurement holds nobody up.
  const double peak_flops = kernels::cpu::measure_fma_peak(id.threads);

  caf::actor_system_config config = make_system_config();
  caf::actor_system system(config);
  auto parts = std::make_shared<RankParts>();
  parts->identity = id;
  parts->kernel_variant = device->traits().kernel_variant;
  const auto trainer_switch = std::make_shared<TrainerSwitch>();
  parts->trainer_switch = trainer_switch;
  parts->logger = options.logger;
  parts->make_stage = [&, device = device.get(), ucx = *context](caf::actor rank) {
    return spawn_stage(system, {id, device, &clock, trainer_switch, ucx, &boot_clock, peak_flops, std::move(rank)});
  };
  const Event done = parts->done;
  const caf::actor rank = system.spawn<RankActor>(parts);
  transport::LinkService links(options.logger);
  auto link = links.adopt_unix(FileDescriptor(options.socket), {"node", {}}, link_options(), callbacks_to(rank));
  if (!link) {
    options.logger.error("cannot speak to the node", {{"why", link.error().message}});
    leave(1);
  }
  caf::anon_send(rank, LinkUp{*link});
  static_cast<void>(done.wait(kNoDeadline).ok());
  (*link)->close("the rank ends");
  // The stage notices the cancellation by itself; frames already queued leave meanwhile.
  static_cast<void>(Event().wait(clock.now() + (trainer_switch->ended() ? milliseconds(50) : kExitGrace)).ok());
  leave(0);
}

}  // namespace kintsugi::actors
