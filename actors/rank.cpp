#include "actors/rank.hpp"

#include <sys/prctl.h>
#include <unistd.h>
#include <caf/send.hpp>

#include <csignal>
#include <cstdlib>

#include "actors/injection.hpp"
#include "actors/supervised.hpp"
#include "kernels/cpu/cpu_device.hpp"
#include "kernels/cpu/peak.hpp"
#include "transport/link/link_service.hpp"

namespace kintsugi::actors {

namespace {

struct HeldRank {
  RankIdentity identity;
  std::string kernel_variant;
  std::shared_ptr<TrainerSwitch> trainer_switch;
  std::function<caf::actor(Place)> make_stage;
  Event done;  // signalled when the process may end
  Logger logger;
  caf::actor stage;
  std::shared_ptr<transport::Link> link;
};

// Owns the link to the node and answers its pings, so that a rank whose event side is stuck is noticed. Everything that
// may block is the stage's. Link and stage outlive an incarnation.
class Rank final : public Body {
 public:
  Rank(Life life, HeldRank& held) : Body(std::move(life)), held_(held) {}

  caf::behavior make_behavior() override {
    if (!held_.stage) held_.stage = held_.make_stage(place("stage"));
    return {
        [this](const LinkUp& up) {
          held_.link = up.link;
          say_hello();
          tell_actors();
        },
        [this](const LinkFrame& m) { on_frame(m); },
        [](const LinkPing& ping) { ping.link->pong(ping.id); },
        [this](const LinkDown& m) { finish("the node is gone: " + m.why.message); },
        [this](const StageFrame& m) { to_node(std::move(*m.frame)); },
        [this](const StageFailed& m) { on_failure(m); },
        [this](const ActorsChanged&) { tell_actors(); },
    };
  }

  void on_end() override {
    held_.stage = nullptr;
    held_.link = nullptr;
    held_.make_stage = nullptr;
  }

 private:
  void say_hello() {
    to_node(make_frame([&](schemas::Message::Builder m) {
      auto up = m.initRankUp();
      up.setJob(held_.identity.job.value);
      up.setRank(held_.identity.rank.value);
      up.setPid(static_cast<std::uint32_t>(::getpid()));
      up.setIncarnation(held_.identity.incarnation.value);
      up.setKernelVariant(held_.kernel_variant);
    }));
  }

  void tell_actors() {
    to_node(make_frame([&](schemas::Message::Builder m) {
      write_actors(*life().tree, held_.identity.rank.value, m.initProcessActors());
    }));
  }

  void on_frame(const LinkFrame& m) {
    const Result<void> read = guarded([&] {
      switch (m.message.which()) {
        case schemas::Message::FENCE: return on_fence(m.message.get().getFence());
        case schemas::Message::INTEND:
          return held_.trainer_switch->intend(read_generation(m.message.get().getIntend().getGeneration()));
        case schemas::Message::SUPERVISION: {
          const auto in = m.message.get().getSupervision();
          return held_.trainer_switch->set_supervision({in.getLost(), Instant{in.getParkAtNs()}});
        }
        case schemas::Message::PREPARE: return send(held_.stage, PrepareStage{m.message});
        case schemas::Message::SEGMENTS: return send(held_.stage, StageSegments{m.message});
        case schemas::Message::RESUME:
          return send(held_.stage, TrainStage{read_generation(m.message.get().getResume().getGeneration())});
        case schemas::Message::SAVE:
          return send(held_.stage, SaveStage{m.message.get().getSave().getDirectory().cStr()});
        case schemas::Message::INJECT: {
          const auto actor = m.message.get().getInject().getTarget().getActor();
          static_cast<void>(life().tree->crash(parse_actor(actor.cStr()).kind));
          return;
        }
        case schemas::Message::STOP: return finish(m.message.get().getStop().getWhy().cStr());
        default:
          held_.logger.warning("a message that no rank understands", {{"kind", std::int64_t{m.message.which()}}});
      }
    });
    if (!read) finish(read.error().message);
  }

  // The trainer is cancelled from here, at once; the stage hears of it when it is idle again.
  void on_fence(schemas::Fence::Reader in) {
    const Generation generation = read_generation(in.getGeneration());
    held_.trainer_switch->fence(generation, {ErrorAction::cancelled, in.getWhy().cStr()});
    send(held_.stage, FenceStage{{in.getLineage()}, generation, {in.getKnownStep()}});
  }

  void on_failure(const StageFailed& failure) {
    // A process that was told to end has no news for the node.
    if (held_.trainer_switch->ended()) return;
    const Error& error = failure.error;
    held_.logger.error("the rank failed", {{"why", error.message}});
    to_node(make_frame([&](schemas::Message::Builder m) {
      auto failed = m.initFailed();
      failed.setJob(held_.identity.job.value);
      failed.setRank(held_.identity.rank.value);
      failed.setAction(static_cast<std::uint8_t>(error.action));
      failed.setMessage(error.message);
      write_generation(failure.generation, failed.initGeneration());
      auto lost = failed.initLostPeers(static_cast<unsigned>(failure.lost_peers.size()));
      unsigned i = 0;
      for (const RankId peer : failure.lost_peers) lost.set(i++, peer.value);
    }));
  }

  void to_node(transport::Frame frame) {
    if (!held_.link) return;
    if (const Result<void> sent = held_.link->send(std::move(frame)); !sent) finish(sent.error().message);
  }

  void finish(const std::string& why) {
    held_.logger.info("the rank ends", {{"why", why}});
    held_.trainer_switch->end({ErrorAction::cancelled, why});
    held_.done.signal();
  }

  HeldRank& held_;
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
  ActorTree tree(options.logger);
  auto parts = std::make_shared<HeldRank>();
  parts->identity = id;
  parts->kernel_variant = device->traits().kernel_variant;
  const auto trainer_switch = std::make_shared<TrainerSwitch>();
  parts->trainer_switch = trainer_switch;
  parts->logger = options.logger;
  parts->make_stage = [&, device = device.get(), ucx = *context](Place place) {
    return spawn_stage(std::move(place), {id, device, &clock, trainer_switch, ucx, &boot_clock, peak_flops});
  };
  const Event done = parts->done;
  // The process is replaced.
  const auto on_spent = [&, end = parts->done](const std::string& why) mutable {
    trainer_switch->end({ErrorAction::cancelled, why});
    end.signal();
  };
  const caf::actor rank = spawn_supervised({&system, &tree, "rank", nullptr, 0, on_spent}, bodies_of<Rank>(parts));
  tree.watch(rank);
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
