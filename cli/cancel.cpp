#include "cli/client.hpp"
#include "cli/command.hpp"

namespace kintsugi::cli {

namespace {

struct CancelOptions {
  std::uint32_t job = 0;
  std::string state;
  LogOptions log;
};

int cancel(const CancelOptions& o) {
  const auto answer =
      ask(o.state, actors::make_frame([&](schemas::Message::Builder m) { m.initCancel().setJob(o.job); }),
          o.log.make("cancel"));
  if (!answer) return fail(answer.error());
  int code = kDone;
  const Result<void> read = actors::guarded([&] {
    const auto m = answer->get();
    if (m.isRefused())
      code = fail({ErrorAction::refuse, m.getRefused().getMessage().cStr()});
    else if (m.isAccepted())
      std::printf("job %u is being cancelled\n", m.getAccepted().getJob());
  });
  return read ? code : fail(read.error());
}

}  // namespace

void add_cancel(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("cancel", "End a job");
  auto o = std::make_shared<CancelOptions>();
  command->add_option("JOB", o->job, "its number; may be left out while there is one")
      ->check(CLI::Range(1U, UINT32_MAX));
  add_state_option(*command, o->state);
  o->log.add_to(*command);
  command->footer("Example:\n  kintsugi cancel 3");
  command->callback([&action, o] { action = [o] { return cancel(*o); }; });
}

}  // namespace kintsugi::cli
