// drain and evict: planned leaves. The cluster takes them on; the change comes at a vote of the running job.
#include "cli/client.hpp"
#include "cli/command.hpp"

namespace kintsugi::cli {

namespace {

struct LeaveOptions {
  std::uint32_t number = 0;
  std::string state;
  LogOptions log;
};

using Fill = void (*)(schemas::Message::Builder, std::uint32_t);

int leave(const LeaveOptions& o, const char* what, Fill fill) {
  const Result<void> taken =
      order(o.state, actors::make_frame([&](schemas::Message::Builder m) { fill(m, o.number); }), o.log.make("leave"));
  if (!taken) return fail(taken.error());
  std::printf("%s %u gives up its work at the next votes; `kintsugi status` shows when it is gone\n", what, o.number);
  return kDone;
}

void add(CLI::App& app, Action& action, const char* name, const char* about, const char* argument, const char* what,
         const char* footer, Fill fill) {
  CLI::App* command = app.add_subcommand(name, about);
  auto o = std::make_shared<LeaveOptions>();
  command->add_option(argument, o->number, std::string("the number of the ") + what)->required();
  add_state_option(*command, o->state);
  o->log.add_to(*command);
  command->footer(footer);
  command->callback([&action, o, what, fill] { action = [o, what, fill] { return leave(*o, what, fill); }; });
}

}  // namespace

void add_drain(CLI::App& app, Action& action) {
  add(app, action, "drain", "Let a node leave without loss: its work and shards move first", "NODE", "node",
      "Example:\n  kintsugi drain 2", [](schemas::Message::Builder m, std::uint32_t node) { m.setDrain(node); });
}

void add_evict(CLI::App& app, Action& action) {
  add(app, action, "evict", "Let one rank leave without loss; its slot is not used again", "RANK", "rank",
      "Example:\n  kintsugi evict 3", [](schemas::Message::Builder m, std::uint32_t rank) { m.setEvict(rank); });
}

}  // namespace kintsugi::cli
