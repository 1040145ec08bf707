// Submits a job over a link and follows it to its end.
#pragma once

#include <functional>
#include <string>

#include "cli/client.hpp"
#include "cli/job_options.hpp"
#include "cli/progress.hpp"

namespace kintsugi::cli {

struct FollowRequest {
  actors::Submission submission;           // follow = false: returns once the job is accepted
  std::string report_file;                 // empty: none
  std::function<bool()> is_deserted = {};  // `run`: no child is left, which is the end of the job; may be empty
  std::function<void(const InboxItem&)> on_item = {};  // sees every item first; may be empty
  // A lost supervisor may come back: dials it again, for so long. Empty: the job ends with it.
  std::function<void()> dial_again = {};
  Duration patience = {};
};

struct JobEnd {
  int exit_code = 0;
  std::string message;     // why it ended early
  bool impatient = false;  // a second signal: end everything at once
};

// Prints progress, what was trained and where things are. A first SIGINT or SIGTERM cancels the job and waits for its
// end.
JobEnd follow_job(Inbox& inbox, const FollowRequest& request);

}  // namespace kintsugi::cli
