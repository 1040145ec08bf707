#include "cli/follow.hpp"

namespace kintsugi::cli {

namespace {

struct SubmitOptions {
  JobOptions job;
  std::string state;
  std::uint32_t nodes = 0;
  bool detach = false;
  LogOptions log;
};

int submit(const SubmitOptions& o) {
  Result<PreparedJob> job = prepare_job(o.job);
  if (!job) return fail(job.error());
  const Result<transport::ClusterFile> cluster = transport::read_cluster_file(o.state);
  if (!cluster) return fail(cluster.error());
  job->submission.nodes = o.nodes;
  job->submission.follow = !o.detach;
  Inbox inbox;
  Client client(inbox, *cluster, o.log.make("submit"));
  const JobEnd end = follow_job(inbox, {job->submission,
                                        o.job.report,
                                        {},
                                        {},
                                        [&] {
                                          // One that took over may be elsewhere.
                                          const auto now = transport::read_cluster_file(o.state);
                                          if (now && now->token == cluster->token) client.move_to(now->addresses);
                                          client.dial();
                                        },
                                        seconds(job->config.resilience.orphan_limit)});
  if (!end.message.empty()) std::fprintf(stderr, "kintsugi: %s\n", end.message.c_str());
  return end.exit_code;
}

}  // namespace

void add_submit(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("submit", "Give a job to a running cluster and follow it");
  auto o = std::make_shared<SubmitOptions>();
  o->job.add_to(*command);
  add_state_option(*command, o->state);
  command->add_option("--nodes", o->nodes, "wait until this many nodes are there")
      ->type_name("M")
      ->check(CLI::Range(1, 4096));
  command->add_flag("--detach", o->detach, "return once the job is accepted; Ctrl-C then cannot end it");
  o->log.add_to(*command);
  command->footer(
      "While it follows, Ctrl-C cancels the job. A client that is killed leaves it running. One whose supervisor\n"
      "is lost waits for it to be started again.\n\n"
      "Example:\n  kintsugi submit job.yaml --ranks 4 --save model --report report.json");
  command->callback([&action, o] { action = [o] { return submit(*o); }; });
}

}  // namespace kintsugi::cli
