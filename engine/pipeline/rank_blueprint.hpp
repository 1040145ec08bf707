// What a rank of a generation is, before it has any memory: its share of the plan as instruction lists, and what they need.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/control/recovery.hpp"
#include "engine/pipeline/rank_memory.hpp"

namespace kintsugi {

// What follows from (job, plan, transition, rank) before any memory exists.
struct RankBlueprint {
  JobConfig job;
  ModelLayout layout;
  Plan plan;
  Redo redo;                 // what the first step needs
  RankProgram program = {};  // of every step but the first; with the memory that either needs
  RankProgram first = {};
  Step from = {};                  // the generation's first step is the one after it; of a transition
  std::vector<LaneId> again = {};  // that the first step computes once more
  LayerPrograms layers = {};
  std::size_t arena_bytes = 0;  // read by peers
  std::size_t local_bytes = 0;

  // Shards of which the rank needs a copy, RankState::copy_bytes each: its own, then replicas.
  std::vector<Shard> copies() const;

  static std::unique_ptr<RankBlueprint> make(const JobConfig& job, const Plan& plan,
                                             const std::optional<Transition>& transition, RankId rank,
                                             kernels::Ops& ops);
};

}  // namespace kintsugi
