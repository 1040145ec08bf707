// Members that are counted and not named (decision 0013). Most of those that answer a fence hold what the plan in force
// gives them, all of it at one version and with the digests that holders agreed on at the last vote: one statement stands
// for all of them, and whoever differs is named beside it. What is decided is what their single reports would have it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/flat_set.hpp"
#include "engine/control/rank_report.hpp"
#include "engine/plan/plan.hpp"

namespace kintsugi {

struct CountedRanks {
  RankSet ranks;                                       // living, on the nodes of `plan`
  std::shared_ptr<const Plan> plan;                    // whose shards they hold: the last one that was in force
  Step version;                                        // of all their copies
  std::uint64_t updates = 0;                           // t there
  std::shared_ptr<const std::vector<Digest>> digests;  // by shard, of the copies
  std::optional<DecisionRecord> record;                // the newest that they hold
  // Of the step that their vote did not end, merged: who has which sums, and the lanes that any of them has begun.
  Step under_way;
  std::vector<KeptSum> sums = {};
  std::vector<LaneId> begun = {};

  // The same of all, but for who they are.
  bool says_as(const CountedRanks& other) const;
  bool operator==(const CountedRanks&) const = default;
};

// What each of them would report, by rank. Lanes begun are those of the first.
std::vector<RankReport> unfold(const CountedRanks& counted);

// All that is known of ranks after a fence: one report of each that is named, and those that are counted, if any. Read
// during a call.
struct Reports {
  Reports() = default;
  Reports(const std::vector<RankReport>& all, const CountedRanks* others = nullptr)  // NOLINT: most often all are named
      : named(all), counted(others == nullptr || others->ranks.empty() ? nullptr : others) {}
  std::span<const RankReport> named;
  const CountedRanks* counted = nullptr;
};

}  // namespace kintsugi
