// A job's progress for people, on standard error: one line that is rewritten on a terminal, plain lines otherwise, at
// most one a second.
#pragma once

#include <string>

#include "base/clock.hpp"
#include "schemas/control.capnp.h"

namespace kintsugi::cli {

class ProgressView {
 public:
  ProgressView();
  void show(schemas::Progress::Reader progress);
  // Ends the rewritten line, so that what follows stands below it.
  void finish();

 private:
  void rewrite(const std::string& line);

  bool terminal_;
  SteadyClock clock_;
  bool line_open_ = false;
  std::uint64_t first_step_ = 0;  // seen here; 0: none
  Instant first_at_, last_at_;
};

// "1:02:03", "4:05", "7 s".
std::string format_time_left(double seconds);

}  // namespace kintsugi::cli
