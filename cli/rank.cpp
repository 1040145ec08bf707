#include "actors/rank.hpp"

#include "cli/command.hpp"

namespace kintsugi::cli {

void add_rank(CLI::App& app, Action& action) {
  struct Options {
    actors::RankProcessOptions process;
    LogOptions log;
  };
  CLI::App* command = app.add_subcommand("rank", "a rank process; started by a node, never by a person")->group("");
  auto o = std::make_shared<Options>();
  actors::RankIdentity& id = o->process.identity;
  command->add_option("--socket", o->process.socket)->required();
  command->add_option("--job", id.job.value)->required();
  command->add_option("--rank", id.rank.value)->required();
  command->add_option("--incarnation", id.incarnation.value)->required();
  command->add_option("--threads", id.threads)->required();
  command->add_flag("--ucx-only", id.ucx_only);
  command->add_option("--interface", id.interface);
  o->log.add_to(*command);
  command->callback([&action, o] {
    action = [o] {
      o->process.logger = o->log.make("rank", LogLevel::warning);
      return actors::run_rank_process(o->process);
    };
  });
}

}  // namespace kintsugi::cli
