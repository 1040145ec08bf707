// What a rank holds, as it or its node says after a fence.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/control/decision_record.hpp"
#include "engine/plan/redo.hpp"

namespace kintsugi {

// One copy of one shard, STABLE.
struct CopyReport {
  ShardId shard;
  Step version;
  std::uint64_t updates = 0;  // t
  Digest digest;
  bool has_next_gradient = false;  // the reduced gradient of version + 1 is there: the record is all it lacks
  bool operator==(const CopyReport&) const = default;
};

// How far a rank came in the step that its vote did not end.
struct SumReport {
  Step step;
  std::vector<LayerSum> sums;  // intact in its memory; they may overlap
  std::vector<LaneId> begun;   // ascending; those of the sums may be missing
  bool operator==(const SumReport&) const = default;
};

// Of one rank, living or gone.
struct RankReport {
  RankId rank;
  NodeId node;
  bool alive = true;
  std::vector<CopyReport> copies;
  std::optional<DecisionRecord> record;  // the newest it holds
  SumReport sums = {};
  bool operator==(const RankReport&) const = default;
};

}  // namespace kintsugi
