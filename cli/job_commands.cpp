// cancel, pause and resume: what a person says to a job.
#include "cli/client.hpp"
#include "cli/command.hpp"

namespace kintsugi::cli {

namespace {

struct JobCommand {
  const char* name;
  const char* about;
  const char* done;  // "job 3 ..."
  const char* footer;
  void (*fill)(schemas::Message::Builder, std::uint32_t job);
};

constexpr JobCommand kCancel{"cancel", "End a job", "is being cancelled", "Example:\n  kintsugi cancel 3",
                             [](schemas::Message::Builder m, std::uint32_t job) { m.initCancel().setJob(job); }};
constexpr JobCommand kPause{"pause", "Stop a job between two steps; it keeps its processes and all state",
                            "pauses after the step in progress", "Example:\n  kintsugi pause",
                            [](schemas::Message::Builder m, std::uint32_t job) { m.setPauseJob(job); }};
constexpr JobCommand kResume{"resume", "Go on with a paused job", "goes on", "Example:\n  kintsugi resume",
                             [](schemas::Message::Builder m, std::uint32_t job) { m.setResumeJob(job); }};

struct JobCommandOptions {
  std::uint32_t job = 0;
  std::string state;
  LogOptions log;
};

int run(const JobCommand& command, const JobCommandOptions& o) {
  const auto answer = ask(o.state, actors::make_frame([&](schemas::Message::Builder m) { command.fill(m, o.job); }),
                          o.log.make(command.name));
  if (!answer) return fail(answer.error());
  int code = kDone;
  const Result<void> read = actors::guarded([&] {
    const auto m = answer->get();
    if (m.isRefused())
      code = fail({ErrorAction::refuse, m.getRefused().getMessage().cStr()});
    else if (m.isAccepted())
      std::printf("job %u %s\n", m.getAccepted().getJob(), command.done);
  });
  return read ? code : fail(read.error());
}

void add(CLI::App& app, Action& action, const JobCommand& command) {
  CLI::App* sub = app.add_subcommand(command.name, command.about);
  auto o = std::make_shared<JobCommandOptions>();
  sub->add_option("JOB", o->job, "its number; may be left out while there is one")->check(CLI::Range(1U, UINT32_MAX));
  add_state_option(*sub, o->state);
  o->log.add_to(*sub);
  sub->footer(command.footer);
  sub->callback([&action, &command, o] { action = [&command, o] { return run(command, *o); }; });
}

}  // namespace

void add_cancel(CLI::App& app, Action& action) {
  add(app, action, kCancel);
}
void add_pause(CLI::App& app, Action& action) {
  add(app, action, kPause);
}
void add_resume(CLI::App& app, Action& action) {
  add(app, action, kResume);
}

}  // namespace kintsugi::cli
