#include "cli/job_options.hpp"

#include <unistd.h>

#include <filesystem>

#include "base/file.hpp"

namespace kintsugi::cli {

namespace fs = std::filesystem;

void JobOptions::add_to(CLI::App& command) {
  command.add_option("JOB", job_file, "the job file (YAML)")->required()->type_name("FILE");
  command.add_option("--ranks", ranks, "rank processes in all")->type_name("N")->check(CLI::Range(1, 4096));
  command.add_option("--threads", threads, "compute threads of each rank; default: the cores, shared out")
      ->type_name("T")
      ->check(CLI::Range(1, 1024));
  command.add_option("--stages", stages, "pipeline stages, in place of the job file's")
      ->type_name("S")
      ->check(CLI::Range(1, 100'000));
  command.add_option("--steps", steps, "train until this step, in place of the job file's")
      ->type_name("K")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  command.add_option("--save", save, "at the end, write model (Hugging Face form) and full state here")
      ->type_name("DIR");
  command.add_option("--resume", resume, "start from the state that --save wrote here")->type_name("DIR");
  command.add_option("--report", report, "at the end, write what was measured as one JSON object")->type_name("FILE");
  command.add_option("--transport", transport, "tensors inside a node: shared memory (auto), or UCX everywhere (ucx)")
      ->check(CLI::IsMember({"auto", "ucx"}))
      ->capture_default_str();
}

namespace {

// Found now, not after hours of training.
Result<void> check_report_path(const std::string& path, const std::string& job_file) {
  if (path.empty()) return {};
  const fs::path file(path);
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  std::error_code ignored;
  if (fs::is_directory(file, ignored)) {
    return Error{ErrorAction::tell_user, "--report: " + path + " is a directory; name a file"};
  }
  if (fs::equivalent(file, job_file, ignored)) {
    return Error{ErrorAction::tell_user, "--report: " + path + " is the job file; name another"};
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    return Error{ErrorAction::tell_user,
                 "--report: " + errno_message("cannot write in", folder) + "; make the folder, or name another"};
  }
  return {};
}

}  // namespace

Result<PreparedJob> prepare_job(const JobOptions& options) {
  PreparedJob job;
  KINTSUGI_TRY_ASSIGN(job.config, load_job(options.job_file));
  if (options.steps > 0) job.config.steps = options.steps;
  if (options.stages > 0) job.config.parallel.stages = options.stages;
  job.config.data.train = absolute_path(job.config.data.train);
  // Overrides obey the rules of the file.
  const std::string yaml = to_yaml(job.config);
  if (options.stages > 0 || options.steps > 0) {
    if (const Result<JobConfig> checked = parse_job(yaml, options.job_file + " with the command's options"); !checked) {
      return checked.error();
    }
  }
  KINTSUGI_TRY(check_report_path(options.report, options.job_file));
  job.submission = {yaml,
                    options.job_file,
                    options.ranks,
                    0,
                    options.threads,
                    absolute_path(options.save),
                    absolute_path(options.resume),
                    options.transport == "ucx",
                    true};
  return job;
}

transport::Frame submit_frame(const actors::Submission& s) {
  return actors::make_frame([&](schemas::Message::Builder m) {
    auto out = m.initSubmit();
    out.setJobFile(s.job_file);
    out.setSource(s.source);
    out.setRanks(s.ranks);
    out.setNodes(s.nodes);
    out.setThreads(s.threads);
    out.setSaveDirectory(s.save_directory);
    out.setResumeDirectory(s.resume_directory);
    out.setUcxOnly(s.ucx_only);
    out.setFollow(s.follow);
  });
}

}  // namespace kintsugi::cli
