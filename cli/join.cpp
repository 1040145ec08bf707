#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "actors/node.hpp"
#include "cli/command.hpp"

namespace kintsugi::cli {

namespace {

struct JoinOptions {
  std::vector<std::string> addresses;
  std::string token;
  std::uint32_t slots = usable_cores();
  std::vector<std::string> labels;
  std::string interface;
  int parent = 0;
  LogOptions log;
};

int join(const JoinOptions& o) {
  if (o.parent != 0) {
    // Set first, then compared: a parent that ended in between is noticed either way.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != o.parent) return kFailed;
  }
  std::string text = o.token;
  if (const char* inherited = std::getenv("KINTSUGI_TOKEN"); text.empty() && inherited != nullptr) text = inherited;
  ::unsetenv("KINTSUGI_TOKEN");  // rank processes have no use for it
  const Result<transport::JoinToken> token = transport::parse_join_token(text);
  if (!token) return fail({token.error().action, "--token (or KINTSUGI_TOKEN): " + token.error().message});
  for (const std::string& label : o.labels) {
    if (label.find('=') == std::string::npos)
      return fail({ErrorAction::tell_user, "--labels: '" + label + "' is not KEY=VALUE"});
  }
  actors::NodeProcessOptions node;
  node.addresses = o.addresses;
  node.token = *token;
  node.slots = o.slots;
  node.labels = o.labels;
  node.interface = o.interface;
  node.version = kintsugi_version();
  node.embedded = o.parent != 0;
  node.logger = o.log.make("node", LogLevel::warning);
  return actors::run_node_process(node);
}

}  // namespace

void add_join(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("join", "Make this machine a node of a cluster, at any time");
  auto o = std::make_shared<JoinOptions>();
  command
      ->add_option("HOST:PORT", o->addresses,
                   "where the supervisor listens, and where one that takes over would: tried in order")
      ->delimiter(',')
      ->required();
  command->add_option("--token", o->token,
                      "as `kintsugi supervise` prints it; default: the variable KINTSUGI_TOKEN, which "
                      "does not show in process lists");
  command->add_option("--slots", o->slots, "rank processes at once; default: one a core")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  command->add_option("--labels", o->labels, "what to know this machine by: rack=r1,...")->delimiter(',');
  command
      ->add_option("--interface", o->interface,
                   "network interface for tensors between nodes, which travel unencrypted; default: any")
      ->type_name("IFACE");
  command->add_option("--parent", o->parent)->group("");
  o->log.add_to(*command);
  command->footer("Example:\n  kintsugi join 192.0.2.7:7700 --token kintsugi1.... --slots 2 --labels rack=r1");
  command->callback([&action, o] { action = [o] { return join(*o); }; });
}

}  // namespace kintsugi::cli
