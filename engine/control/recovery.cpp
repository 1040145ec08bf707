#include "engine/control/recovery.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/mutant.hpp"
#include "base/probe.hpp"
#include "engine/control/report_index.hpp"

namespace kintsugi {

namespace {

struct SeenCopy {
  const RankReport* by = nullptr;
  const CopyReport* copy = nullptr;
};
using Copies = std::vector<SeenCopy>;

// Of all reports, shard by shard.
class CopiesByShard {
 public:
  CopiesByShard(std::span<const RankReport> reports, std::uint32_t shard_count) : first_(shard_count + 1, 0) {
    const auto visit = [&](const auto& take) {
      for (const RankReport& report : reports) {
        for (const CopyReport& copy : report.copies) {
          if (copy.shard.value < shard_count) take(report, copy);
        }
      }
    };
    visit([&](const RankReport&, const CopyReport& copy) { ++first_[copy.shard.value + 1]; });
    for (std::uint32_t s = 0; s < shard_count; ++s) first_[s + 1] += first_[s];
    all_.resize(first_.back());
    std::vector<std::size_t> next(first_.begin(), first_.end() - 1);
    visit([&](const RankReport& report, const CopyReport& copy) { all_[next[copy.shard.value]++] = {&report, &copy}; });
  }
  const Copies& all() const { return all_; }
  std::span<const SeenCopy> of(std::uint32_t shard) const {
    return std::span(all_).subspan(first_[shard], first_[shard + 1] - first_[shard]);
  }

 private:
  std::vector<std::size_t> first_;  // by shard, and the end: in all_
  Copies all_;
};

// Those at `version`. Where they differ, only what strictly most of them agree on is believed: two that differ say that
// one of them is corrupt, and not which.
Copies believed(std::span<const SeenCopy> copies, Step version, std::vector<std::string>& disagreements) {
  Copies at_version;
  for (const SeenCopy& seen : copies) {
    if (seen.copy->version == version) at_version.push_back(seen);
  }
  const auto value = [](const SeenCopy& seen) { return std::pair(seen.copy->updates, seen.copy->digest); };
  const auto agrees = [&](const SeenCopy& seen) { return value(seen) == value(at_version.front()); };
  if (std::all_of(at_version.begin(), at_version.end(), agrees)) return at_version;
  std::map<std::pair<std::uint64_t, Digest>, Copies> groups;
  for (const SeenCopy& seen : at_version) groups[value(seen)].push_back(seen);
  std::size_t most = 0, times = 0;
  std::string told;
  for (const auto& [_, group] : groups) {
    if (group.size() > most) times = 0;
    most = std::max(most, group.size());
    if (group.size() == most) ++times;
    for (const SeenCopy& seen : group) {
      told += fmt::format("{}rank {} has {} (t = {})", told.empty() ? "" : ", ", seen.by->rank.value,
                          to_hex(seen.copy->digest), seen.copy->updates);
    }
  }
  const ShardId shard = groups.begin()->second.front().copy->shard;
  KINTSUGI_PROBE("cut: copies of one version differ");
  disagreements.push_back(fmt::format("copies of shard {} at step {} differ: {}; {}", shard.value, version.value, told,
                                      times == 1 ? "the majority is believed" : "none of them is believed"));
  if (times > 1) return {};
  return std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.second.size() == most; })->second;
}

const DecisionRecord* newest_record(std::span<const RankReport> reports, const std::optional<DecisionRecord>& known) {
  const DecisionRecord* newest = known ? &*known : nullptr;
  const auto age = [](const DecisionRecord& r) { return std::tie(r.step, r.generation); };
  for (const RankReport& report : reports) {
    if (report.record && (newest == nullptr || age(*newest) < age(*report.record))) newest = &*report.record;
  }
  return newest;
}

}  // namespace

Cut decide_cut(std::span<const RankReport> reports, const std::optional<DecisionRecord>& known,
               std::uint32_t shard_count) {
  Cut cut;
  const CopiesByShard copies(reports, shard_count);
  const DecisionRecord* record = newest_record(reports, known);
  if (record != nullptr) cut.step = record->step;
  for (const SeenCopy& seen : copies.all()) cut.step = std::max(cut.step, seen.copy->version);
  if (record != nullptr && record->step == cut.step) cut.record = *record;
  if (cut.record) cut.updates = cut.record->updates;

  for (std::uint32_t s = 0; s < shard_count; ++s) {
    std::vector<RankId> living, gone;
    for (const SeenCopy& seen : believed(copies.of(s), cut.step, cut.disagreements)) {
      (seen.by->alive ? living : gone).push_back(seen.by->rank);
      if (!cut.record) cut.updates = std::max(cut.updates, seen.copy->updates);
    }
    if (cut.record && cut.step.value > 0) {
      // The gradient of a process dies with it.
      for (const SeenCopy& seen : believed(copies.of(s), {cut.step.value - 1}, cut.disagreements)) {
        const bool is_believed = KINTSUGI_MUTANT(believes_a_stale_copy) && !seen.by->alive;
        if ((seen.by->alive && seen.copy->has_next_gradient) || is_believed) living.push_back(seen.by->rank);
      }
    }
    sort_unique(living);
    sort_unique(gone);
    living.insert(living.end(), gone.begin(), gone.end());
    if (living.empty()) cut.lost.push_back({s});
    cut.holders.push_back(std::move(living));
  }
  return cut;
}

std::vector<std::vector<RankId>> reachable_copies(const Cut& cut, std::span<const RankReport> reports,
                                                  std::span<const PlanMember> members) {
  const ReportIndex report_of(reports);
  const NodeIndex members_on(members);
  std::vector<RankId> living;
  for (const PlanMember& member : members) living.push_back(member.rank);
  sort_unique(living);
  std::vector<std::vector<RankId>> reachable;
  reachable.reserve(cut.holders.size());
  for (const std::vector<RankId>& holders : cut.holders) {
    std::vector<RankId>& ranks = reachable.emplace_back();
    for (const RankId holder : holders) {
      const RankReport& report = report_of.of(holder);
      if (!report.alive)
        members_on.for_each_on(report.node, [&](RankId rank) { ranks.push_back(rank); });
      else if (place_of(holder, living, [](RankId r) { return r; }))
        ranks.push_back(holder);
    }
    sort_unique(ranks);
  }
  return reachable;
}

}  // namespace kintsugi
