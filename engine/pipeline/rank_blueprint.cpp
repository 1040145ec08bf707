#include "engine/pipeline/rank_blueprint.hpp"

#include <algorithm>

namespace kintsugi {

namespace {

// What `program` needs of memory to run `first`, too.
void cover(RankProgram& program, const RankProgram& first) {
  for (StageWork& work : program.stages) {
    const StageWork& other = first.work(work.stage);
    work.slots = std::max(work.slots, other.slots);
    work.gradient_buffers = std::max(work.gradient_buffers, other.gradient_buffers);
  }
  program.kept = first.kept;
}

}  // namespace

std::unique_ptr<RankBlueprint> RankBlueprint::make(const JobConfig& job, const Plan& plan,
                                                   const std::optional<Transition>& transition, RankId rank,
                                                   kernels::Ops& ops) {
  const Redo redo(plan, transition ? transition->sums : std::vector<KeptSum>{});
  auto b = std::make_unique<RankBlueprint>(RankBlueprint{job, ModelLayout(job.model), plan, redo});
  b->program = compile_program(plan, Redo(plan), b->layout, job, rank);
  b->first = compile_program(plan, redo, b->layout, job, rank);
  cover(b->program, b->first);
  if (transition) b->from = transition->step;
  if (transition) b->again = transition->again;
  b->layers = make_layer_programs(b->program, b->layout, job, ops);
  const RankMemory sizes = lay_out_memory(b->program, b->layout, job, b->layers, {}, {});
  // A rank may have nothing at all to lend; its arena is then a page.
  constexpr std::size_t kLeastBytes = 4096;
  b->arena_bytes = std::max(kLeastBytes, sizes.arena_bytes);
  b->local_bytes = std::max(kLeastBytes, sizes.local_bytes);
  return b;
}

std::vector<Shard> RankBlueprint::copies() const {
  std::vector<Shard> all;
  for (const ShardId shard : program.shards) all.push_back(layout.shard(shard));
  for (const ShardId shard : program.replicas) all.push_back(layout.shard(shard));
  return all;
}

}  // namespace kintsugi
