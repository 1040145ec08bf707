// The options of a job that `run` and `submit` share, and what becomes of them.
#pragma once

#include "actors/control_message.hpp"
#include "actors/job_admission.hpp"
#include "cli/command.hpp"

namespace kintsugi::cli {

struct JobOptions {
  std::string job_file;
  std::uint32_t ranks = 0, threads = 0;
  std::int64_t stages = 0, steps = 0;  // 0: as the job file says
  std::string save, resume, report;
  std::string transport = "auto";

  void add_to(CLI::App& command);
};

// A job ready to be sent: overrides applied and checked, paths absolute.
struct PreparedJob {
  JobConfig config;
  actors::Submission submission;
};
// Error{tell_user}: the job file, an override, or a report that could not be written at the end.
Result<PreparedJob> prepare_job(const JobOptions& options);

transport::Frame submit_frame(const actors::Submission& submission);

}  // namespace kintsugi::cli
