#pragma once

#include <vector>

#include "engine/plan/planner.hpp"

namespace kintsugi::testing {

// balanced_partition by dynamic programming: O(parts * items * items).
std::vector<std::uint32_t> reference_partition(const std::vector<double>& costs, std::uint32_t parts);

// make_plan from nothing: O(shards * members).
Result<Plan> reference_plan(const PlanRequest& request, const JobConfig& job, const ModelLayout& layout);

}  // namespace kintsugi::testing
