// An incident's timeline, from the journal on this machine: the supervisor need not live for it.
#include <fmt/format.h>

#include "cli/command.hpp"
#include "engine/telemetry/journal.hpp"
#include "engine/telemetry/timeline.hpp"

namespace kintsugi::cli {

namespace {

struct ExplainOptions {
  std::uint32_t incident = 0;  // 0: the newest
  std::uint32_t job = 0;       // 0: whichever had one last
  bool list = false, json = false;
  std::string state;
};

void print_list(const std::vector<IncidentTimeline>& incidents) {
  for (const IncidentTimeline& i : incidents) {
    const journaled::Event& verdict = i.verdict();
    fmt::print("job {} incident {:>3}  step {:>6}  {}{}{}\n", i.job.value, i.incident, i.lines.front().event.step.value,
               verdict.subject, verdict.subject.empty() ? "" : ": ", verdict.text);
  }
}

void print_json(const std::vector<IncidentTimeline>& incidents) {
  fmt::print("[");
  for (std::size_t i = 0; i < incidents.size(); ++i) fmt::print("{}{}", i == 0 ? "\n" : ",\n", to_json(incidents[i]));
  fmt::print("]\n");
}

int explain(const ExplainOptions& o) {
  const Result<JournalContents> journal = read_journal(o.state);
  if (!journal) return fail(journal.error());
  if (journal->dropped_bytes != 0) {
    std::fprintf(stderr, "kintsugi: the last %zu bytes of the journal in %s are not whole and are left out\n",
                 journal->dropped_bytes, o.state.c_str());
  }
  std::vector<IncidentTimeline> incidents = incident_timelines(journal->entries);
  if (o.job != 0) std::erase_if(incidents, [&](const IncidentTimeline& i) { return i.job.value != o.job; });
  if (incidents.empty()) {
    if (o.incident != 0 || o.job != 0) {
      return fail({ErrorAction::tell_user,
                   fmt::format("{} tells of no incident{}: `kintsugi explain --list` shows those there are", o.state,
                               o.job == 0 ? "" : fmt::format(" of job {}", o.job))});
    }
    fmt::print("{}\n", o.json ? "[]" : "no incident");
    return kDone;
  }
  if (o.list) {
    if (o.json)
      print_json(incidents);
    else
      print_list(incidents);
    return kDone;
  }
  const IncidentTimeline* chosen = &incidents.back();
  if (o.incident != 0) {
    // A job's numbers: of the job that had an incident last, where none was named.
    const JobId job = incidents.back().job;
    chosen = nullptr;
    for (const IncidentTimeline& i : incidents) {
      if (i.job == job && i.incident == o.incident) chosen = &i;
    }
    if (chosen == nullptr) {
      return fail({ErrorAction::tell_user,
                   fmt::format("job {} has no incident {} in {}: `kintsugi explain --list` shows those there are",
                               job.value, o.incident, o.state)});
    }
  }
  fmt::print("{}{}", o.json ? to_json(*chosen) : to_text(*chosen), o.json ? "\n" : "");
  return kDone;
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("explain", "What happened in an incident, line by line, and what it cost");
  auto o = std::make_shared<ExplainOptions>();
  command->add_option("INCIDENT", o->incident, "its number in the job's report; without it, the newest")
      ->check(CLI::Range(1U, UINT32_MAX));
  command->add_option("--job", o->job, "of this job; without it, of the one that had an incident last")
      ->check(CLI::Range(1U, UINT32_MAX));
  command->add_flag("--list", o->list, "all of them, a line each");
  command->add_flag("--json", o->json, "print JSON");
  add_state_option(*command, o->state);
  command->footer(
      "Reads the journal in the supervisor's state directory; the supervisor may be gone. `kintsugi run` keeps one\n"
      "when it is given --state.\n\n"
      "Example:\n  kintsugi run examples/tiny.yaml --ranks 4 --state /tmp/tiny\n  kintsugi explain --state /tmp/tiny");
  command->callback([&action, o] { action = [o] { return explain(*o); }; });
}

}  // namespace kintsugi::cli
