#include "sim/cost/phase_cost.hpp"

#include <algorithm>
#include <map>

namespace kintsugi::sim {

double PhaseCost::wave(std::size_t members) const {
  double reached = 1, hops = 0;
  for (; reached < static_cast<double>(members); reached *= kFanOut) hops += 1;
  return hops * hop();
}

double PhaseCost::fence(std::size_t members, const Plan* in_force) const {
  return wave(members) + (in_force == nullptr ? 0 : step_.operation(*in_force));
}

double PhaseCost::report(std::size_t members) const {
  return wave(members) + static_cast<double>(members) * kInventoryBytes / s_.cluster.system.rank_bandwidth;
}

double PhaseCost::prepare(const Plan& plan, const Transition* transition, const ModelLayout& layout, double scale,
                          bool newcomers) const {
  const double link = s_.cluster.system.rank_bandwidth * static_cast<double>(s_.workload.tensor);
  double most = 0;
  if (transition != nullptr) {
    std::map<RankId, double> in, out;
    for (const ShardMove& move : transition->moves) {
      if (move.take_over) continue;
      const double bytes = static_cast<double>(layout.shard(move.shard).count) * scale * kStateBytesPerElement;
      most = std::max({most, in[move.to] += bytes, out[move.from] += bytes});
    }
  }
  if (newcomers) most += step_.weights_of_stage();
  return 2 * wave(plan.ranks.size()) + most / link + s_.policy.rebuild;
}

}  // namespace kintsugi::sim
