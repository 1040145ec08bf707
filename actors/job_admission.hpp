// What can be known of a job before any rank exists: whether its file, data, shape, saved state and save folder will
// do.
#pragma once

#include <optional>
#include <string>

#include "base/ids.hpp"
#include "engine/model/job_config.hpp"

namespace kintsugi::actors {

// schemas::Submit, decoded.
struct Submission {
  std::string job_file;  // YAML
  std::string source;    // its path, for messages
  std::uint32_t ranks = 0;
  std::uint32_t nodes = 0;
  std::uint32_t threads = 0;
  std::string save_directory;    // absolute or empty
  std::string resume_directory;  // absolute or empty
  bool ucx_only = false;
  bool follow = false;
};

struct AdmittedJob {
  Submission submission;
  JobConfig config;
  Lineage lineage{1};
  Step first;                 // where training starts
  std::uint64_t updates = 0;  // t there
};

// Reads the whole token file once, so: not on a thread that must answer pings. Every Error{tell_user} says what and
// where, and what to do. Leaves nothing behind.
Result<AdmittedJob> admit(Submission submission);

}  // namespace kintsugi::actors
