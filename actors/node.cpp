#include "actors/node.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <thread>

#include "actors/injection.hpp"
#include "actors/node_job.hpp"
#include "base/tell.hpp"
#include "kernels/cpu/cpu_device.hpp"

namespace kintsugi::actors {

namespace {

struct NodeExit {
  int code = 0;
  std::string why;
};

struct NodeEnd {  // why the node must end
  NodeExit exit;
};
struct NodeGiveUp {};

struct NodeParts {
  NodeServices& services;
  const NodeProcessOptions& options;
  Incarnation incarnation;
  std::function<void(NodeExit)> on_exit;
};

}  // namespace

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::NodeEnd)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::NodeGiveUp)

namespace kintsugi::actors {

namespace {

// How long rank processes may take to end before the node leaves without them; they are killed with it.
constexpr Duration kLeaveGrace = milliseconds(1'500);

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

class NodeSupervisor final : public caf::event_based_actor {
 public:
  NodeSupervisor(caf::actor_config& config, std::shared_ptr<NodeParts> parts)
      : caf::event_based_actor(config), parts_(*parts) {}

  const char* name() const override { return "node_supervisor"; }

  caf::behavior make_behavior() override {
    return {
        [this](const LinkUp& m) {
          link_ = m.link;
          say_hello();
        },
        [this](const LinkFrame& m) { on_frame(m.message); },
        [](const LinkPing& m) { m.link->pong(m.id); },
        [this](const LinkDown& m) {
          link_ = nullptr;
          end({1, "the supervisor is lost: " + m.why.message});
        },
        [this](const UpFrame& m) { to_supervisor(std::move(*m.frame)); },
        [this](const NodeJobEnded& m) {
          jobs_.erase(m.job);
          if (ending_ && jobs_.empty()) leave();
        },
        [this](const NodeEnd& m) { end(m.exit); },
        [this](const NodeGiveUp&) { leave(); },
    };
  }

  void on_exit() override {
    jobs_.clear();
    link_ = nullptr;
  }

 private:
  void say_hello() {
    const NodeProcessOptions& o = parts_.options;
    to_supervisor(make_frame([&](schemas::Message::Builder m) {
      auto hello = m.initNodeHello();
      hello.setHostname(host_name());
      hello.setSlots(o.slots);
      hello.setCores(std::thread::hardware_concurrency());
      hello.setMemoryBytes(static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                           static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
      hello.setPid(static_cast<std::uint32_t>(::getpid()));
      hello.setIncarnation(parts_.incarnation.value);
      hello.setKernelVariant(kernels::cpu::cpu_kernel_variant());
      hello.setVersion(o.version);
      auto labels = hello.initLabels(static_cast<unsigned>(o.labels.size()));
      for (unsigned i = 0; i < labels.size(); ++i) labels.set(i, o.labels[i]);
    }));
  }

  void to_supervisor(transport::Frame frame) {
    if (!link_) return;
    if (const Result<void> sent = link_->send(std::move(frame)); !sent) link_->close(sent.error().message);
  }

  void on_frame(const ControlMessage& message) {
    const Result<void> read = guarded([&] {
      const schemas::Message::Reader in = message.get();
      switch (in.which()) {
        case schemas::Message::WELCOME:
          if (parts_.options.announce) {
            tell("joined as node {} with {} slots\n", in.getWelcome().getNode(), parts_.options.slots);
          }
          break;
        case schemas::Message::START_RANKS: {
          const JobId job{in.getStartRanks().getJob()};
          if (ending_) break;
          if (!jobs_.contains(job)) jobs_[job] = spawn_node_job(system(), parts_.services, job, this);
          to_job(job, message);
          break;
        }
        case schemas::Message::INJECT: inject(in.getInject(), message); break;
        case schemas::Message::FENCE: to_job({in.getFence().getJob()}, message); break;
        case schemas::Message::INTEND: to_job({in.getIntend().getJob()}, message); break;
        case schemas::Message::KILL_RANK: to_job({in.getKillRank().getJob()}, message); break;
        case schemas::Message::PREPARE: to_job({in.getPrepare().getJob()}, message); break;
        case schemas::Message::RESUME: to_job({in.getResume().getJob()}, message); break;
        case schemas::Message::SAVE: to_job({in.getSave().getJob()}, message); break;
        case schemas::Message::STOP: to_job({in.getStop().getJob()}, message); break;
        case schemas::Message::LEAVE: end({0, in.getLeave().cStr()}); break;
        default: parts_.services.logger.warning("a message that no node understands"); break;
      }
    });
    if (!read && link_) link_->close(read.error().message);
  }

  void to_job(JobId job, const ControlMessage& message) {
    const auto at = jobs_.find(job);
    if (at != jobs_.end()) send(at->second, JobFrame{message});
  }

  // On this process, or on a rank of whichever job runs here.
  void inject(schemas::Inject::Reader in, const ControlMessage& message) {
    if (in.getTarget().isNode()) {
      ::raise(signal_of(in.getFault()));
      return;
    }
    for (const auto& [job, actor] : jobs_) send(actor, JobFrame{message});
  }

  void end(const NodeExit& exit) {
    if (ending_) return;
    ending_ = exit;
    if (jobs_.empty()) return leave();
    for (const auto& [job, actor] : jobs_) {
      send(actor, JobFrame{*ControlMessage::parse(make_frame([&](schemas::Message::Builder m) {
             auto stop = m.initStop();
             stop.setJob(job.value);
             stop.setWhy(exit.why);
           }))});
    }
    delayed_send(this, std::chrono::nanoseconds(kLeaveGrace.ns), NodeGiveUp{});
  }

  void leave() {
    if (link_) link_->close(ending_->why);
    parts_.on_exit(*ending_);
  }

  const NodeParts parts_;
  std::shared_ptr<transport::Link> link_;
  std::map<JobId, caf::actor> jobs_;
  std::optional<NodeExit> ending_;
};

}  // namespace

int run_node_process(const NodeProcessOptions& options) {
  // Blocked in every thread made from here on; children start with an empty mask.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  const SteadyClock clock;
  ProcessWatcher processes;
  transport::LinkService links(options.logger);
  NodeServices services{processes, links, options.logger, options.interface};
  caf::actor_system_config config = make_system_config();
  caf::actor_system system(config);

  Event done;
  auto exit = std::make_shared<NodeExit>();
  auto parts = std::make_shared<NodeParts>(NodeParts{services, options, {}, [done, exit](NodeExit e) mutable {
                                                       *exit = std::move(e);
                                                       done.signal();
                                                     }});
  parts->incarnation = {static_cast<std::uint64_t>(wall_clock_ns()) ^ static_cast<std::uint64_t>(::getpid()) << 32};
  const caf::actor node = system.spawn<NodeSupervisor>(parts);
  const FileDescriptor interrupts(::signalfd(-1, &signals, SFD_CLOEXEC));
  std::thread([fd = interrupts.get(), node] {
    signalfd_siginfo info{};
    if (::read(fd, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      caf::anon_send(node, NodeEnd{{130, fmt::format("interrupted by signal {}", info.ssi_signo)}});
    }
  }).detach();

  if (options.announce) tell("joining {}\n", fmt::join(options.addresses, ", "));
  links.dial({options.addresses,
              options.token,
              {transport::LinkRole::node, parts->incarnation, host_name()},
              options.join_deadline,
              link_options(),
              callbacks_to(node)},
             [node](const Result<std::shared_ptr<transport::Link>>& link) {
               if (link)
                 caf::anon_send(node, LinkUp{*link});
               else
                 caf::anon_send(node, NodeEnd{{3, link.error().message}});
             });
  static_cast<void>(done.wait(kNoDeadline).ok());
  const auto& [code, why] = *exit;
  options.logger.info("the node ends", {{"why", why}, {"exit_code", code}});
  if (code != 0) tell("kintsugi join: {}\n", why);
  links.stop();
  std::fflush(nullptr);
  std::_Exit(code);  // rank processes that are left die with this one
}

}  // namespace kintsugi::actors
