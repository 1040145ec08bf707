// Plans as they travel and are stored.
#pragma once

#include "base/result.hpp"
#include "engine/plan/plan.hpp"
#include "schemas/plan.capnp.h"

namespace kintsugi {

void write_plan(const Plan& plan, schemas::Plan::Builder out);
// Error{fail_link} when the digest does not match or the table breaks its own rules (lanes not covered, ranks unknown).
Result<Plan> read_plan(schemas::Plan::Reader in);

}  // namespace kintsugi
