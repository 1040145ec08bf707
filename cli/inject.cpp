#include "cli/command.hpp"
#include "cli/strike.hpp"

namespace kintsugi::cli {

namespace {

struct InjectOptions {
  std::string fault;
  std::string target;
  std::string state;
  LogOptions log;
};

int inject(const InjectOptions& o) {
  const Result<void> struck = strike(o.fault, o.target, o.state, o.log.make("inject"));
  if (!struck) return fail(struck.error());
  std::printf("%s: sent to %s\n", o.fault.c_str(), o.target.c_str());
  return kDone;
}

}  // namespace

void add_inject(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("inject", "Strike a live cluster with a real fault");
  auto o = std::make_shared<InjectOptions>();
  command
      ->add_option("FAULT", o->fault,
                   "kill, stop, continue: a process; corrupt: a bit of a copy of a shard; crash: an actor throws")
      ->required();
  command->add_option("--on", o->target, "rank:N, node:N, supervisor; for corrupt shard:S@rank:R; for crash actor:NAME")
      ->required();
  add_state_option(*command, o->state);
  o->log.add_to(*command);
  command->footer(
      "Example:\n  kintsugi inject kill --on rank:2\n  kintsugi inject corrupt --on shard:0@rank:1\n"
      "  kintsugi inject crash --on actor:stage@2     (`kintsugi status` names all actors)");
  command->callback([&action, o] { action = [o] { return inject(*o); }; });
}

}  // namespace kintsugi::cli
