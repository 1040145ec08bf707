// What tells two plans of a job apart: whom a change of generation concerns.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/plan.hpp"

namespace kintsugi {

struct PlanChanges {
  std::vector<RankId> workers;  // members of the later plan that work other cells than before, ascending
  std::vector<RankId> holders;  // that hold other shards, or one in another role, ascending
  std::uint64_t shards = 0;     // with other holders
};

// Plans of one job. In one pass over both, and the logarithm of what differs.
PlanChanges changes_between(const Plan& before, const Plan& after);

}  // namespace kintsugi
