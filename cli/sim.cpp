// A scenario in virtual time: the production job machine and planner on a cluster that is not there.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/file.hpp"
#include "cli/command.hpp"
#include "cli/sim_swarm.hpp"
#include "sim/report/report.hpp"
#include "sim/scenario/scenario_map.hpp"

namespace kintsugi::cli {

namespace {

struct SimOptions {
  std::string scenario, report, html, table;
  std::optional<std::uint64_t> seed, swarm;
};

// On a terminal only: files and pipes get no half lines.
class ProgressBar {
 public:
  explicit ProgressBar(const char* what) : what_(what), shown_(::isatty(STDERR_FILENO) == 1) {}
  ~ProgressBar() {
    if (shown_ && last_ >= 0) std::fprintf(stderr, "\r\033[K");
  }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(double share) {
    const int percent = static_cast<int>(share * 100);
    if (!shown_ || percent == last_) return;
    last_ = percent;
    constexpr int kCells = 40;
    const std::string bar(static_cast<std::size_t>(std::min(kCells, percent * kCells / 100)), '#');
    std::fprintf(stderr, "\r%s [%-40s] %3d %%", what_, bar.c_str(), percent);
  }

 private:
  const char* what_;
  const bool shown_;
  int last_ = -1;
};

// Before hours are spent on what cannot be kept.
Result<void> check_output(const char* option, const std::string& path) {
  if (path.empty()) return {};
  if (std::filesystem::is_directory(path)) {
    return Error{ErrorAction::tell_user, fmt::format("{}: {} is a directory; name a file", option, path)};
  }
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (::access(folder.c_str(), W_OK) == 0) return {};
  return Error{ErrorAction::tell_user, fmt::format("{}: {}; make the folder, or name another", option,
                                                   errno_message("cannot write in", folder.string()))};
}

Result<void> write_text(const std::string& path, const std::string& text) {
  return write_to(path, std::as_bytes(std::span(text)));
}

void print(const sim::FleetReport& r) {
  const sim::FleetOutcome& o = r.ours;
  fmt::print("{}: simulated, seed {}\n", r.scenario->name, r.seed);
  fmt::print("  ranks      {} in the job, {} provisioned, {:.1f} days\n", o.in_job_ranks, o.provisioned_ranks,
             o.wall / 86'400);
  fmt::print("  faults     {}, of which {} struck nothing of the job; {} returns to a checkpoint\n", o.faults,
             o.idle_faults, o.returns);
  fmt::print("  step       {:.3f} s without faults, {:.0f} committed\n", o.step_seconds, o.steps);
  fmt::print("  recovery   {:.1f} s median, {:.1f} s in 99 of 100\n", sim::percentile(o.recovery, 0.5),
             sim::percentile(o.recovery, 0.99));
  fmt::print("  goodput    {} of the ranks in the job, {} of all provisioned\n", sim::percent(o.goodput_in_job()),
             sim::percent(o.goodput()));
  for (const sim::Outcome& other : r.others) {
    fmt::print("             {} / {} with {} ({})\n", sim::percent(other.goodput_in_job()),
               sim::percent(other.goodput()), other.policy, other.assumptions);
  }
  fmt::print("  machine    {} steps, {} plans\n  event hash {:016x}\n", o.machine_steps, o.plans, o.event_hash);
}

void print_table(const sim::FleetReport& r) {
  fmt::print("  goodput in job / provisioned, over {:.1f} days a cell:\n  spares  hang    ", r.sweep_duration / 86'400);
  for (const double rebuild : sim::kRebuilds) fmt::print("{:<20}", fmt::format("rebuild {} s", rebuild));
  for (std::size_t i = 0; i < r.sweep.size(); ++i) {
    const sim::SweepCell& c = r.sweep[i];
    if (i % std::size(sim::kRebuilds) == 0) {
      fmt::print("\n  {:<8}{:<8}", fmt::format("{} %", c.spares * 100), fmt::format("{} s", c.hang_detection));
    }
    fmt::print("{:<20}", sim::percent(c.goodput_in_job) + " / " + sim::percent(c.goodput));
  }
  fmt::print("\n");
}

int simulate(const SimOptions& o) {
  if (o.swarm) {
    if (!o.scenario.empty()) {
      return fail(
          {ErrorAction::tell_user, "--swarm draws its clusters and faults from --seed; leave out the scenario"});
    }
    if (!o.report.empty() || !o.html.empty() || !o.table.empty()) {
      return fail({ErrorAction::tell_user, "--report, --html and --table are of a scenario; a swarm only prints"});
    }
    return simulate_swarm(*o.swarm, o.seed.value_or(1));
  }
  if (o.scenario.empty()) {
    return fail({ErrorAction::tell_user, "name a scenario file, or ask for `--swarm RUNS`"});
  }
  const Result<sim::Scenario> scenario = sim::load_scenario(o.scenario);
  if (!scenario) return fail(scenario.error());
  if (const auto fine = check_output("--report", o.report); !fine) return fail(fine.error());
  if (const auto fine = check_output("--html", o.html); !fine) return fail(fine.error());
  std::optional<double> table;
  if (!o.table.empty()) {
    table = sim::seconds_from(o.table);
    if (!table || *table <= 0 || *table > scenario->duration) {
      return fail({ErrorAction::tell_user,
                   "--table: '" + o.table + "' is no time up to the scenario's duration; write one such as 10d"});
    }
  }
  const std::uint64_t seed = o.seed.value_or(scenario->seed);
  sim::FleetReport report;
  {
    ProgressBar bar("simulating");
    report = sim::make_report(*scenario, seed, [&](double share) { bar.show(share); });
  }
  report.version = kintsugi_version();
  if (table) {
    ProgressBar bar("table");
    report.sweep = sim::run_sweep(*scenario, seed, *table, [&](double share) { bar.show(share); });
    report.sweep_duration = *table;
  }
  if (!o.report.empty()) {
    const auto written = write_text(o.report, to_json(report).dump(2) + "\n");
    if (!written) return fail(written.error());
  }
  if (!o.html.empty()) {
    if (const auto written = write_text(o.html, to_html(report)); !written) return fail(written.error());
  }
  print(report);
  if (table) print_table(report);
  if (report.ours.ended) return fail({ErrorAction::restart_process, report.ours.why_ended});
  return kDone;
}

}  // namespace

void add_sim(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("sim", "A scenario of faults in virtual time, with the production control code");
  auto o = std::make_shared<SimOptions>();
  command->add_option("SCENARIO", o->scenario, "the scenario file")->type_name("FILE");
  command->add_option("--seed", o->seed, "of all that is random; else the scenario's")
      ->type_name("S")
      ->check(whole_number());
  command
      ->add_option("--swarm", o->swarm,
                   "run so many small clusters instead, every message an event; from --seed on (1)")
      ->type_name("RUNS")
      ->check(whole_number());
  command->add_option("--report", o->report, "write a JSON report here")->type_name("FILE");
  command->add_option("--html", o->html, "write a page with pictures here")->type_name("FILE");
  command
      ->add_option("--table", o->table,
                   "also run 36 variations (communicator rebuild x hang detection x spares), each so long")
      ->type_name("TIME");
  command->footer(
      "The same seed gives the same event hash on every machine. Nothing is measured: what comes out is simulated, "
      "from\n"
      "the figures in the scenario and in docs/SIMULATOR.md.\n\n"
      "Example:\n  kintsugi sim examples/scenarios/llama3-405b-54d.yaml --seed 7 --report fleet.json --html "
      "fleet.html\n  kintsugi sim --swarm 10000 --seed 1");
  command->callback([&action, o] { action = [o] { return simulate(*o); }; });
}

}  // namespace kintsugi::cli
