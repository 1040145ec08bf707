#include "actors/node.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <caf/send.hpp>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "actors/node_supervisor.hpp"
#include "base/event.hpp"
#include "base/tell.hpp"

namespace kintsugi::actors {

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
  ActorTree tree(options.logger);
  NodeServices services{processes, links, options.logger, options.interface, tree};
  caf::actor_system_config config = make_system_config();
  caf::actor_system system(config);

  Event done;
  auto exit = std::make_shared<NodeExit>();
  auto parts = std::make_shared<NodeParts>(NodeParts{services, options, {}, [done, exit](NodeExit e) mutable {
                                                       *exit = std::move(e);
                                                       done.signal();
                                                     }});
  parts->incarnation = {static_cast<std::uint64_t>(wall_clock_ns()) ^ static_cast<std::uint64_t>(::getpid()) << 32};
  if (!options.embedded) tell("joining {}\n", fmt::join(options.addresses, ", "));
  const caf::actor node = spawn_node_supervisor(system, *parts);
  const FileDescriptor interrupts(::signalfd(-1, &signals, SFD_CLOEXEC));
  std::thread([fd = interrupts.get(), node] {
    signalfd_siginfo info{};
    if (::read(fd, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      caf::anon_send(node, NodeEnd{{130, fmt::format("interrupted by signal {}", info.ssi_signo)}});
    }
  }).detach();

  static_cast<void>(done.wait(kNoDeadline).ok());
  const auto& [code, why] = *exit;
  options.logger.info("the node ends", {{"why", why}, {"exit_code", code}});
  if (code != 0) tell("kintsugi join: {}\n", why);
  links.stop();
  std::fflush(nullptr);
  std::_Exit(code);  // rank processes that are left die with this one
}

}  // namespace kintsugi::actors
