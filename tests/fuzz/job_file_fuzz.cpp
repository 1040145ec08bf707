// libFuzzer target: job files. A refusal names the file, or the job survives being written out and read again and has
// shapes whose arithmetic is safe.
#include <cstdint>
#include <string>

#include "base/assert.hpp"
#include "engine/model/job_config.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace kintsugi;
  const Result<JobConfig> job = parse_job(std::string(reinterpret_cast<const char*>(bytes), size), "fuzz");
  if (!job) {
    KINTSUGI_ASSERT(job.error().action == ErrorAction::tell_user && job.error().message.starts_with("fuzz:"));
    KINTSUGI_ASSERT(job.error().message.find('\n') == std::string::npos);
    return 0;
  }
  const Result<JobConfig> again = parse_job(to_yaml(*job), "again");
  KINTSUGI_ASSERT(again.ok() && *again == *job && job_identity(*again) == job_identity(*job));
  const ModelConfig& m = job->model;
  KINTSUGI_ASSERT(m.head_dim() * m.heads == m.width && m.heads % m.kv_heads == 0);
  const BatchConfig& b = job->batch;
  KINTSUGI_ASSERT(b.microbatches_per_lane() * b.microbatch * b.lanes == b.sequences && b.tokens_per_step() > 0);
  return 0;
}
