#include "actors/preparation.hpp"

#include "engine/control/recovery_codec.hpp"
#include "engine/plan/plan_codec.hpp"

namespace kintsugi::actors {

Result<Preparation> read_preparation(schemas::Prepare::Reader in) {
  Preparation p;
  KINTSUGI_TRY_ASSIGN(p.job, parse_job(in.getJobFile().cStr(), "the job as sent by the supervisor"));
  KINTSUGI_TRY_ASSIGN(p.plan, read_plan(in.getPlan()));
  const auto addresses = in.getUcxAddresses();
  if (addresses.size() != p.plan.rank_count()) {
    return Error{ErrorAction::fail_link, "a plan arrived without an address for each of its ranks"};
  }
  for (unsigned i = 0; i < addresses.size(); ++i) {
    const auto* bytes = reinterpret_cast<const std::byte*>(addresses[i].begin());
    p.ucx_addresses[p.plan.ranks[i].rank].assign(bytes, bytes + addresses[i].size());
  }
  p.last = {in.getSteps()};
  p.resume_directory = in.getResumeDirectory().cStr();
  p.step_budget = milliseconds(static_cast<std::int64_t>(in.getStepBudgetMs()));
  if (in.hasTransition()) p.transition = read_transition(in.getTransition());
  return p;
}

}  // namespace kintsugi::actors
