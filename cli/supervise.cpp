#include <unistd.h>

#include <charconv>
#include <csignal>

#include "actors/cluster.hpp"
#include "actors/takeover_listener.hpp"
#include "base/tell.hpp"
#include "cli/command.hpp"
#include "cli/inbox.hpp"
#include "cli/state.hpp"
#include "transport/link/cluster_file.hpp"
#include "transport/link/private_file.hpp"

namespace kintsugi::cli {

namespace {

struct SuperviseOptions {
  std::string listen = "127.0.0.1:7700";
  std::string state;
  bool adopt = false;
  std::string identity;  // file; empty: the state directory's own
  LogOptions log;
};

constexpr Duration kEndGrace = seconds(3);

// ADDRESS:PORT, [V6]:PORT, :PORT (every interface).
Result<transport::ListenAddress> parse_listen(const std::string& text) {
  const Error wrong{ErrorAction::tell_user, "--listen: '" + text + "' is not ADDRESS:PORT (0.0.0.0:7700, [::]:7700)"};
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return wrong;
  transport::ListenAddress out;
  out.address = text.substr(0, colon);
  if (out.address.size() >= 2 && out.address.front() == '[' && out.address.back() == ']') {
    out.address = out.address.substr(1, out.address.size() - 2);
  } else if (out.address.find(':') != std::string::npos) {
    return wrong;
  }
  const char* end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data() + colon + 1, end, out.port);
  if (failed != std::errc() || stop != end) return wrong;
  return out;
}

bool is_wildcard(const std::string& address) {
  return address.empty() || address == "0.0.0.0" || address == "::";
}

// Where port 0 was asked for, a cluster that has members keeps the port at which they look for it.
std::uint16_t former_port(const Journal& journal) {
  if (journal.found().nodes.empty() && journal.found().jobs.empty()) return 0;
  const Result<transport::ClusterFile> former = transport::read_cluster_file(journal.directory());
  if (!former) return 0;
  const Result<transport::ListenAddress> address = parse_listen(former->addresses.front());
  return address ? address->port : 0;
}

// As if it had been killed and started again: nothing of this process is left but what it was asked to do.
[[noreturn]] void start_again() {
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execv("/proc/self/exe", own_arguments());
  std::_Exit(kFailed);  // the nodes wait for the next one
}

[[noreturn]] void start_again_after(Duration slept) {
  tell(
      "kintsugi: this supervisor did not run for {:.1f} s, and its nodes have given it up; it starts again and takes "
      "them up as they are\n",
      slept.seconds());
  start_again();
}

[[noreturn]] void start_again_from_journal(const std::string& why) {
  tell("kintsugi: {}; this supervisor starts again from its journal and takes its nodes up as they are\n", why);
  start_again();
}

int wait_for_end(Inbox& inbox, actors::Cluster& cluster) {
  int code = kDone;
  Instant deadline = kNoDeadline;
  while (!cluster.done().is_done()) {
    const std::optional<InboxItem> item = inbox.next(deadline);
    if (!item) return kFailed;  // a job did not end in its time; its processes die with their nodes
    if (!std::holds_alternative<Interrupted>(*item)) continue;
    if (code == kInterrupted) return code;
    code = kInterrupted;
    deadline = SteadyClock().now() + kEndGrace;
    cluster.stop("the supervisor was interrupted");
  }
  const Result<void> outcome = cluster.done().wait(SteadyClock().now());
  return outcome ? code : fail(outcome.error());
}

std::string identity_path(const std::string& state) {
  return state + "/identity.json";
}
bool exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

Result<transport::Identity> read_identity(const std::string& path) {
  KINTSUGI_TRY_ASSIGN(const std::string text, transport::read_private_file(path, 64 * kKiB));
  Result<transport::Identity> identity = transport::parse_identity(text);
  if (!identity) return Error{ErrorAction::tell_user, "--identity " + path + ": it holds no supervisor's identity"};
  return identity;
}

// The state directory is there, and its journal is open.
Result<transport::Identity> identity_in(const std::string& state, const std::string& given) {
  if (given.empty()) return transport::load_or_make_identity(state);
  KINTSUGI_TRY_ASSIGN(const transport::Identity identity, read_identity(given));
  if (!exists(identity_path(state))) {
    KINTSUGI_TRY(transport::write_private_file(identity_path(state), transport::to_text(identity)));
    return identity;
  }
  KINTSUGI_TRY_ASSIGN(transport::Identity own, transport::load_or_make_identity(state));
  if (own.token == identity.token) return own;
  return Error{ErrorAction::tell_user,
               "--identity " + given + ": " + state + " is another cluster's; name a new state directory"};
}

// What --adopt finds out before there is a supervisor.
struct TakenOver {
  std::uint16_t port = 0;
  std::uint32_t least_epoch = 1;
};

// Gathers the journal from the cluster's nodes into the state directory, which has none. Error{cancelled}: interrupted.
Result<TakenOver> take_over(const SuperviseOptions& o, const std::string& state,
                            const transport::ListenAddress& listen) {
  const std::string path = o.identity.empty() ? identity_path(state) : o.identity;
  if (!exists(path)) {
    return Error{ErrorAction::tell_user, "--adopt: " + path +
                                             " does not exist; nodes obey whoever holds the cluster's identity: give "
                                             "--identity FILE, a copy of identity.json of the former state directory"};
  }
  KINTSUGI_TRY_ASSIGN(transport::Identity identity, read_identity(path));
  Inbox inbox;
  KINTSUGI_TRY_ASSIGN(const std::unique_ptr<actors::TakeoverListener> gathering,
                      actors::TakeoverListener::start(
                          {listen.address, listen.port, std::move(identity), o.log.make("takeover", LogLevel::error)}));
  std::printf("Taking over: nodes that keep the journal are waited for on %s.\n", gathering->address().text().c_str());
  std::fflush(stdout);
  gathering->done().when_done([&inbox](const Result<void>&) { inbox.push(ClusterEnded{}); });
  while (!gathering->done().is_done()) {
    const std::optional<InboxItem> item = inbox.next(kNoDeadline);  // the listener has its own
    if (item && std::holds_alternative<Interrupted>(*item)) {
      return Error{ErrorAction::cancelled, "interrupted before any node came"};
    }
  }
  KINTSUGI_TRY(gathering->done().wait(SteadyClock().now()));
  const actors::GatheredJournal found = gathering->journal();
  KINTSUGI_TRY(Journal::restore(state, found.cluster_id, found.entries));
  if (found.absent > 0) {
    std::printf("%zu nodes that the journal names have not come; they may come later.\n", found.absent);
  }
  return TakenOver{gathering->address().port, found.least_epoch};
}

int supervise(const SuperviseOptions& o) {
  ::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is the journal's error, which is told
  const Result<transport::ListenAddress> listen = parse_listen(o.listen);
  if (!listen) return fail(listen.error());
  Result<TakenOver> taken = TakenOver{};
  if (o.adopt && exists(absolute_path(o.state) + "/journal")) {
    std::printf("%s has a journal: the supervisor goes on with it.\n", absolute_path(o.state).c_str());
  } else if (o.adopt) {
    taken = take_over(o, absolute_path(o.state), *listen);
  }
  if (!taken) return fail(taken.error());
  Inbox inbox;
  const Result<std::shared_ptr<Journal>> journal = open_journal(absolute_path(o.state), taken->least_epoch);
  if (!journal) return fail(journal.error());
  const std::string& state = (*journal)->directory();
  Result<transport::Identity> identity = identity_in(state, o.identity);
  if (!identity) return fail(identity.error());
  const transport::JoinToken token = identity->token;

  actors::ClusterOptions options;
  options.address = listen->address;
  options.port = listen->port != 0 ? listen->port : taken->port != 0 ? taken->port : former_port(**journal);
  options.identity = std::move(*identity);
  options.journal = *journal;
  options.on_stall = start_again_after;
  options.on_spent = start_again_from_journal;
  options.version = kintsugi_version();
  options.logger = o.log.make("supervisor", LogLevel::warning);
  auto cluster = actors::Cluster::start(std::move(options));
  if (!cluster) return fail(cluster.error());
  (*cluster)->done().when_done([&inbox](const Result<void>&) { inbox.push(ClusterEnded{}); });

  transport::ListenAddress reached = (*cluster)->address();
  if (is_wildcard(reached.address)) reached.address = "127.0.0.1";
  if (const Result<void> wrote = transport::write_cluster_file(state, {{reached.text()}, token}); !wrote) {
    return fail(wrote.error());
  }
  if (is_wildcard(listen->address)) reached.address = host_name();
  std::printf("The supervisor listens on %s. A machine joins with:\n\n  kintsugi join %s --token %s\n\n",
              (*cluster)->address().text().c_str(), reached.text().c_str(), transport::to_text(token).c_str());
  std::printf(
      "To take over on another machine if this one is lost, keep a copy of %s there, as secret as a key:\n\n"
      "  kintsugi supervise --adopt --identity FILE --listen ADDRESS:PORT\n\n"
      "and let nodes join with both addresses.\n\n",
      identity_path(state).c_str());
  for (const auto& [id, job] : (*journal)->found().jobs) {
    std::printf("Job %u goes on: its nodes are waited for.\n", id.value);
  }
  std::fflush(stdout);
  const int code = wait_for_end(inbox, **cluster);
  // After a failure its nodes and clients look for the next supervisor, there.
  if (code == kDone || code == kInterrupted) ::unlink((state + "/cluster.json").c_str());
  return code;
}

}  // namespace

void add_supervise(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("supervise", "Run a cluster's supervisor; prints the command by which machines join");
  auto o = std::make_shared<SuperviseOptions>();
  command->add_option("--listen", o->listen, "where nodes and clients reach it; port 0 takes a free one")
      ->type_name("ADDRESS:PORT")
      ->capture_default_str();
  add_state_option(*command, o->state);
  command->add_flag("--adopt", o->adopt,
                    "take over a running cluster whose supervisor is gone with its state directory: the journal is "
                    "gathered from the nodes");
  command->add_option("--identity", o->identity, "with --adopt: a copy of identity.json of the former state directory")
      ->type_name("FILE")
      ->needs("--adopt");
  o->log.add_to(*command);
  command->footer(
      "By default only this machine can reach it; with --listen 0.0.0.0:7700 others can, if they know the token.\n"
      "Identity and token are kept in the state directory, so that a restarted supervisor is the same one.\n"
      "Nodes and jobs outlive a supervisor that is killed: start it again with the same --state, and it finds them.\n"
      "If its machine is gone: --adopt on another one, at an address that the nodes were given. Only if it is gone: "
      "the\n"
      "order to take over says so.\n\n"
      "Example:\n  kintsugi supervise --listen 0.0.0.0:7700 --state ~/cluster");
  command->callback([&action, o] { action = [o] { return supervise(*o); }; });
}

}  // namespace kintsugi::cli
