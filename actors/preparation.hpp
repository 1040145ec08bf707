// What a schemas::Prepare asks a rank for.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/control_message.hpp"
#include "base/clock.hpp"
#include "engine/control/recovery.hpp"
#include "engine/model/job_config.hpp"

namespace kintsugi::actors {

struct Preparation {
  JobConfig job;
  Plan plan;
  std::map<RankId, std::vector<std::byte>> ucx_addresses;
  Step last;
  std::string resume_directory;
  Duration step_budget;
  std::optional<Transition> transition;
};

// Under guarded(). Error{fail_link}: what arrived is not whole.
Result<Preparation> read_preparation(schemas::Prepare::Reader in);

}  // namespace kintsugi::actors
