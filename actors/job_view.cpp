#include "actors/job_view.hpp"

namespace kintsugi::actors {

JobView make_view(const JobMachine& machine, const JobAccount& account, const std::map<RankId, std::uint32_t>& pids) {
  const JobRequest& request = machine.request();
  JobView v;
  v.job = request.job;
  v.name = request.config.name;
  v.phase = to_string(machine.phase());
  v.incidents = machine.incidents();
  v.step = machine.final_step().value;
  v.steps = static_cast<std::uint64_t>(request.config.steps);
  v.loss = account.last() ? account.last()->loss : 0;
  v.tokens_per_second = account.tokens_per_second();
  const std::optional<Plan>& plan = machine.plan();
  if (!plan) return v;
  v.reason = plan->reason;
  v.generation = plan->generation;
  std::map<RankId, JobView::Rank> ranks;
  for (const PlanRank& r : plan->ranks) {
    const auto pid = pids.find(r.rank);
    ranks[r.rank] = {r.rank, r.node, pid == pids.end() ? 0 : pid->second};
  }
  for (const ShardHolders& shard : plan->shards) {
    ++ranks.at(shard.primary).primaries;
    for (const RankId replica : shard.replicas) ++ranks.at(replica).replicas;
  }
  for (const auto& [id, rank] : ranks) v.ranks.push_back(rank);
  return v;
}

}  // namespace kintsugi::actors
