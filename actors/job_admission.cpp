#include "actors/job_admission.hpp"

#include <fmt/format.h>

#include "actors/save_folder.hpp"
#include "engine/data/batch_reader.hpp"
#include "engine/plan/planner.hpp"
#include "engine/state/saved_state.hpp"

namespace kintsugi::actors {

namespace {

Result<void> check_data(const JobConfig& job) {
  KINTSUGI_TRY_ASSIGN(const auto file, TokenFile::open(job.data.train, job.data.tokens));
  KINTSUGI_TRY(BatchReader::make(file, job.batch, job.data.seed, job.model.vocabulary));
  const std::optional<std::uint64_t> bad = file->first_outside(0, file->token_count(), job.model.vocabulary);
  if (!bad) return {};
  return Error{
      ErrorAction::tell_user,
      fmt::format("{}: token {} is outside the vocabulary of {}; check data.tokens (the file is read as {}) and "
                  "model.vocabulary",
                  job.data.train, *bad, job.model.vocabulary, to_string(job.data.tokens))};
}

// A rank for every cell at most; the planner's own words where there are more.
Result<void> check_ranks(const JobConfig& job, std::uint32_t ranks) {
  if (ranks == 0) return {};
  PlanRequest request;
  for (std::uint32_t r = 0; r < ranks; ++r) request.members.push_back({{r}, {}});
  if (const Result<Plan> plan = make_plan(request, job, ModelLayout(job.model)); !plan) return plan.error();
  return {};
}

Result<void> check_resume(AdmittedJob& job) {
  if (job.submission.resume_directory.empty()) return {};
  KINTSUGI_TRY_ASSIGN(const SavedState saved, SavedState::open(job.submission.resume_directory));
  KINTSUGI_TRY(saved.check_job(job_identity(job.config)));
  KINTSUGI_TRY(saved.check_shards(ModelLayout(job.config.model).shards()));
  const StateManifest& manifest = saved.manifest();
  if (manifest.position.step.value >= static_cast<std::uint64_t>(job.config.steps)) {
    return Error{ErrorAction::tell_user,
                 fmt::format("{} is at step {} already, and the job ends at step {}; ask for more with --steps",
                             job.submission.resume_directory, manifest.position.step.value, job.config.steps)};
  }
  job.lineage = {manifest.lineage.value + 1};
  job.first = manifest.position.step;
  job.updates = manifest.position.updates;
  return {};
}

}  // namespace

Result<AdmittedJob> admit(Submission submission) {
  AdmittedJob job;
  job.submission = std::move(submission);
  KINTSUGI_TRY_ASSIGN(job.config, parse_job(job.submission.job_file, job.submission.source));
  KINTSUGI_TRY(check_ranks(job.config, job.submission.ranks));
  KINTSUGI_TRY(check_resume(job));
  if (!job.submission.save_directory.empty()) KINTSUGI_TRY(SaveFolder::probe(job.submission.save_directory));
  KINTSUGI_TRY(check_data(job.config));
  return job;
}

}  // namespace kintsugi::actors
