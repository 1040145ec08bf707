// Which step used which sample, from the report of a run (promise C4).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "engine/data/audit.hpp"

namespace kintsugi::cli {

namespace {

struct AuditCommand {
  std::string job, report;
  std::uint64_t step = 0;
  std::optional<std::uint64_t> sample;
  bool json = false;
};

constexpr std::size_t kMostReportBytes = 4 * kGiB;

Result<std::vector<Step>> steps_of(const std::string& path, const std::string& job) {
  KINTSUGI_TRY_ASSIGN(const std::vector<std::byte> bytes, read_file(path, kMostReportBytes));
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const nlohmann::json report = nlohmann::json::parse(text, text + bytes.size(), nullptr, false);
  const Error wrong{ErrorAction::tell_user, path + ": is no report of a run (`--report` writes one)"};
  if (!report.is_object() || !report.contains("steps") || !report["steps"].is_array()) return wrong;
  if (report.value("job", "") != job) {
    return Error{ErrorAction::tell_user,
                 fmt::format("{}: is of job '{}', not of '{}'", path, report.value("job", ""), job)};
  }
  std::vector<Step> steps;
  for (const auto& step : report["steps"]) {
    if (!step.is_object() || !step.contains("step") || !step["step"].is_number_unsigned() || step["step"] == 0)
      return wrong;
    steps.push_back({step["step"].get<std::uint64_t>()});
  }
  return steps;
}

// Every final step that used the sample.
std::vector<std::uint64_t> users_of(std::uint64_t sample, const std::vector<Step>& steps, const SampleOrder& order,
                                    const BatchConfig& batch) {
  std::vector<std::uint64_t> users;
  for (const Step step : steps) {
    for (const std::uint64_t used : samples_of_step(order, batch, step)) {
      if (used == sample) users.push_back(step.value);
    }
  }
  return users;
}

Result<int> audit(const AuditCommand& c) {
  KINTSUGI_TRY_ASSIGN(const JobConfig job, load_job(c.job));
  KINTSUGI_TRY_ASSIGN(const auto file, TokenFile::open(job.data.train, job.data.tokens));
  KINTSUGI_TRY_ASSIGN(const BatchReader reader,
                      BatchReader::make(file, job.batch, job.data.seed, job.model.vocabulary));
  KINTSUGI_TRY_ASSIGN(const std::vector<Step> steps, steps_of(c.report, job.name));
  const std::uint64_t samples = sample_count(file->token_count(), static_cast<std::uint64_t>(job.batch.length));
  if (c.step != 0) {
    if (std::find(steps.begin(), steps.end(), Step{c.step}) == steps.end()) {
      return Error{ErrorAction::tell_user, fmt::format("--step: {} has no step {}", c.report, c.step)};
    }
    fmt::print("{}\n", fmt::join(samples_of_step(reader.order(), job.batch, {c.step}), " "));
    return kDone;
  }
  if (c.sample) {
    if (*c.sample >= samples) {
      return Error{ErrorAction::tell_user, fmt::format("--sample: there are {} samples, from 0", samples)};
    }
    fmt::print("{}\n", fmt::join(users_of(*c.sample, steps, reader.order(), job.batch), " "));
    return kDone;
  }
  const DataAudit a = audit_steps(steps, reader.order(), job.batch, samples);
  if (c.json) {
    const nlohmann::ordered_json out{{"steps", steps.size()},          {"samples", a.samples},
                                     {"sequences", a.sequences},       {"first_place", a.first_place},
                                     {"whole_passes", a.whole_passes}, {"problems", a.problems}};
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print("{} steps used {} sequences of {} samples: {} whole passes, each sample once in each\n", steps.size(),
               a.sequences, a.samples, a.whole_passes);
    for (const std::string& problem : a.problems) fmt::print("PROBLEM: {}\n", problem);
  }
  return a.problems.empty() ? kDone : kFailed;
}

}  // namespace

void add_data_audit(CLI::App& data, Action& action) {
  CLI::App* command = data.add_subcommand("audit", "Prove which step of a run used which sample, each once a pass");
  auto c = std::make_shared<AuditCommand>();
  command->add_option("JOB", c->job, "the job file")->required()->type_name("JOB.yaml");
  command->add_option("--report", c->report, "of the run")->required()->type_name("F.json");
  command->add_option("--step", c->step, "print the samples that this step used")
      ->check(CLI::Range(std::uint64_t{1}, UINT64_MAX));
  command->add_option("--sample", c->sample, "print the steps that used this sample")->excludes("--step");
  command->add_flag("--json", c->json, "print JSON");
  command->footer(
      "Sample s is tokens [s * length, (s + 1) * length] of the job's file, counted from 0.\n\n"
      "Example:\n  kintsugi data audit examples/tiny.yaml --report build/report.json");
  command->callback([&action, c] {
    action = [c] {
      const Result<int> code = audit(*c);
      return code ? *code : fail(code.error());
    };
  });
}

}  // namespace kintsugi::cli
