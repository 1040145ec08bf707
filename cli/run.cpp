// Everything on this machine (docs/decisions/0003): what supervise, join and submit do, as the same processes over the
// same links, with the duty to end all that was started.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "actors/cluster.hpp"
#include "cli/follow.hpp"
#include "cli/state.hpp"

namespace kintsugi::cli {

namespace {

struct RunOptions {
  JobOptions job;
  std::uint32_t nodes = 1;
  std::string state;  // empty: no journal
  LogOptions log;
};

// Cancelling a job, leaving and reaping each have bounds of their own; this one is for a bug in them.
constexpr Duration kClusterGrace = seconds(3);
constexpr Duration kChildGrace = milliseconds(800);
// The supervisor is this very process: on a machine that starves it, silence says nothing.
constexpr Duration kOwnSupervisor = seconds(60);

// A journal and an address for other commands, as a supervisor's own.
Result<void> keep_state(const std::string& directory, actors::ClusterOptions& options) {
  KINTSUGI_TRY_ASSIGN(options.journal, open_journal(directory));
  if (!options.journal->found().jobs.empty()) {
    return Error{ErrorAction::tell_user,
                 "--state " + directory +
                     ": a job of another supervisor is not over there; give this run a directory " +
                     "of its own, or go on with that job by `kintsugi supervise --state " + directory + "`"};
  }
  KINTSUGI_TRY_ASSIGN(options.identity, transport::load_or_make_identity(directory));
  return {};
}

// The node processes of this run.
class Nodes {
 public:
  Nodes(Inbox& inbox, const RunOptions& options) : inbox_(inbox), options_(options) {}

  Result<void> start(const transport::ListenAddress& address, const transport::JoinToken& token, std::uint32_t ranks) {
    for (std::uint32_t n = 0; n < options_.nodes; ++n) {
      const std::uint32_t slots = ranks / options_.nodes + (n < ranks % options_.nodes ? 1 : 0);
      actors::SpawnRequest request;
      request.arguments = {
          "kintsugi", "join", address.text(), "--slots", std::to_string(slots), "--parent", std::to_string(::getpid())};
      request.arguments.insert(request.arguments.end(), {"--interface", "lo"});  // all of it is this machine
      const std::vector<std::string> log = options_.log.arguments();
      request.arguments.insert(request.arguments.end(), log.begin(), log.end());
      request.environment = {"KINTSUGI_TOKEN=" + transport::to_text(token)};
      const std::string name = "node process " + std::to_string(n + 1);
      KINTSUGI_TRY_ASSIGN(const pid_t pid,
                          watcher_.spawn(std::move(request), [this, name](const actors::ProcessEnd& end) {
                            inbox_.push(ChildEnded{name, end});
                          }));
      running_.insert(pid);
    }
    return {};
  }

  bool all_ended() const { return running_.empty(); }
  void kill() {
    for (const pid_t pid : running_) watcher_.signal(pid, SIGKILL);
  }

  // Until every node is reaped; those that stay are killed, and their ranks with them.
  void wait() {
    bool killed = false;
    Instant deadline = SteadyClock().now() + kChildGrace;
    while (!running_.empty()) {
      std::optional<InboxItem> item = inbox_.next(deadline);
      if (item) forget_ended(*item);
      if (killed || (item && !std::holds_alternative<Interrupted>(*item))) continue;
      kill();
      killed = true;
      deadline = kNoDeadline;  // nothing survives SIGKILL
    }
  }

  void forget_ended(const InboxItem& item) {
    if (const auto* child = std::get_if<ChildEnded>(&item)) running_.erase(child->end.pid);
  }

 private:
  Inbox& inbox_;
  const RunOptions& options_;
  std::set<pid_t> running_;
  actors::ProcessWatcher watcher_;  // its thread calls back into the members above: it goes first
};

void end_cluster(Inbox& inbox, actors::Cluster& cluster, Nodes& nodes, bool at_once) {
  cluster.stop("the run is over");
  if (at_once) nodes.kill();
  const Instant deadline = SteadyClock().now() + kClusterGrace;
  while (!cluster.done().is_done()) {
    const std::optional<InboxItem> item = inbox.next(deadline);
    if (!item) break;
    nodes.forget_ended(*item);
    if (std::holds_alternative<Interrupted>(*item)) nodes.kill();
  }
  nodes.wait();
}

int run(const RunOptions& o) {
  Inbox inbox;
  Result<PreparedJob> job = prepare_job(o.job);
  if (!job) return fail(job.error());
  actors::Submission& submission = job->submission;
  const auto cells = job->config.parallel.stages.value_or(1) * job->config.batch.lanes;
  if (submission.ranks == 0) {
    submission.ranks = std::max(o.nodes, static_cast<std::uint32_t>(std::min<std::int64_t>(usable_cores(), cells)));
  }
  if (submission.ranks < o.nodes) {
    return fail({ErrorAction::tell_user, "--nodes: " + std::to_string(o.nodes) + " nodes cannot share " +
                                             std::to_string(submission.ranks) + " ranks; ask for more --ranks"});
  }
  // Nodes of one machine share its cores, which none of them knows.
  if (submission.threads == 0) submission.threads = std::max(1U, usable_cores() / submission.ranks);
  submission.nodes = o.nodes;

  const Logger logger = o.log.make("run");
  actors::ClusterOptions options;
  options.address = "127.0.0.1";
  options.embedded = true;
  const std::string state = absolute_path(o.state);
  if (state.empty()) {
    options.identity = transport::make_identity();
  } else if (const Result<void> kept = keep_state(state, options); !kept) {
    return fail(kept.error());
  }
  options.version = kintsugi_version();
  options.logger = logger;
  const transport::JoinToken token = options.identity.token;
  auto cluster = actors::Cluster::start(std::move(options));
  if (!cluster) return fail(cluster.error());
  if (!state.empty()) {
    const Result<void> wrote = transport::write_cluster_file(state, {{(*cluster)->address().text()}, token});
    if (!wrote) return fail(wrote.error());
  }
  (*cluster)->done().when_done([&inbox](const Result<void>&) { inbox.push(ClusterEnded{}); });

  Nodes nodes(inbox, o);
  JobEnd end;
  if (const Result<void> started = nodes.start((*cluster)->address(), token, submission.ranks); started) {
    const Client client(inbox, {{(*cluster)->address().text()}, token}, logger, kOwnSupervisor);
    end = follow_job(inbox, {submission, o.job.report, [&] { return nodes.all_ended(); },
                             [&](const InboxItem& item) { nodes.forget_ended(item); }});
  } else {
    end = {kFailed, started.error().message};
  }
  end_cluster(inbox, **cluster, nodes, end.impatient);
  if (!state.empty()) ::unlink((state + "/cluster.json").c_str());
  if (!end.message.empty()) std::fprintf(stderr, "kintsugi: %s\n", end.message.c_str());
  return end.exit_code;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("run", "Train a job on this machine: supervisor, nodes and ranks, nothing to configure");
  auto o = std::make_shared<RunOptions>();
  o->job.add_to(*command);
  command->add_option("--nodes", o->nodes, "node processes that share the ranks")
      ->type_name("M")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command
      ->add_option("--state", o->state,
                   "keep the journal there, for `kintsugi explain`; `status` and `inject` reach the run by it")
      ->type_name("DIR");
  o->log.add_to(*command);
  command->footer(
      "Without --ranks: one rank a core, at most one for each cell (stages x lanes). The digest of the result is the\n"
      "same for any --ranks, --nodes, --stages and --threads. Ctrl-C ends the job and every process; a second one\n"
      "does not wait.\n\n"
      "Example:\n  kintsugi run examples/tiny.yaml --ranks 4 --nodes 2 --steps 50 --save model --report report.json");
  command->callback([&action, o] { action = [o] { return run(*o); }; });
}

}  // namespace kintsugi::cli
