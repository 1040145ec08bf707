#include "sim/fleet/fold.hpp"

#include <algorithm>

#include "engine/model/layout.hpp"

namespace kintsugi::sim {

namespace {

// Same layers; heads only have to divide widths.
std::optional<ModelConfig> narrowed(const ModelConfig& m, std::int64_t divisor) {
  ModelConfig narrow = m;
  narrow.width = m.width / divisor;
  narrow.hidden = std::max<std::int64_t>(1, m.hidden / divisor);
  narrow.vocabulary = std::max<std::int64_t>(2, m.vocabulary / divisor);
  narrow.context = std::max<std::int64_t>(1, m.context / divisor);
  while (narrow.heads > 1 && (narrow.width % narrow.heads != 0 || (narrow.width / narrow.heads) % 2 != 0)) {
    narrow.heads /= 2;
  }
  narrow.kv_heads = std::max<std::int64_t>(1, m.kv_heads * narrow.heads / m.heads);
  if (narrow.width < 64 || !check_model(narrow, "fold")) return {};
  return narrow;
}

}  // namespace

Fold fold_of(const Scenario& s) {
  Fold fold;
  fold.members = s.cluster.nodes * s.members_per_node();
  const ModelLayout real(s.workload.model);
  fold.real_shards = real.shards().size();
  fold.job.model = s.workload.model;
  for (std::int64_t divisor = 2;; divisor *= 2) {
    const std::optional<ModelConfig> narrow = narrowed(s.workload.model, divisor);
    if (!narrow || ModelLayout(*narrow).shards().size() < fold.members) break;
    fold.job.model = *narrow;
    fold.divisor = static_cast<std::uint32_t>(divisor);
  }
  const ModelLayout folded(fold.job.model);
  fold.shards = folded.shards().size();
  fold.scale = static_cast<double>(real.parameter_count()) / static_cast<double>(folded.parameter_count());
  fold.job.name = s.name;
  fold.job.batch = s.workload.batch;
  fold.job.batch.length = std::max<std::int64_t>(1, s.workload.batch.length / fold.divisor);
  fold.job.parallel.stages = s.workload.stages;
  fold.job.resilience.replicas = s.policy.replicas;
  fold.job.resilience.orphan_limit = static_cast<std::int64_t>(s.policy.orphan_limit);
  fold.job.steps = std::int64_t{1} << 40;
  return fold;
}

}  // namespace kintsugi::sim
