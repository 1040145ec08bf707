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
  RankId rank;
  bool alive = true;
  const CopyReport* copy = nullptr;
};
using Copies = std::vector<SeenCopy>;

// Of all that are named, shard by shard.
class NamedCopies {
 public:
  NamedCopies(std::span<const RankReport> reports, std::uint32_t shard_count) : first_(shard_count + 1, 0) {
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
    visit([&](const RankReport& report, const CopyReport& copy) {
      all_[next[copy.shard.value]++] = {report.rank, report.alive, &copy};
    });
  }
  const Copies& all() const { return all_; }
  std::span<const SeenCopy> of(std::uint32_t shard) const {
    return std::span(all_).subspan(first_[shard], first_[shard + 1] - first_[shard]);
  }

 private:
  std::vector<std::size_t> first_;  // by shard, and the end: in all_
  Copies all_;
};

// Of those that are counted. `of` gives ranks, which are ascending.
class CountedCopies {
 public:
  explicit CountedCopies(const CountedRanks* counted)
      : counted_(counted), is_one_(counted == nullptr ? RankSet{} : counted->ranks, [](RankId rank) { return rank; }) {}
  FewRanks of(std::uint32_t shard) const {
    FewRanks ranks;
    if (counted_ == nullptr || shard >= counted_->plan->shards.size()) return ranks;
    const ShardHolders& holders = counted_->plan->shards[shard];
    if (is_one_(holders.primary)) ranks.push_back(holders.primary);
    for (const RankId replica : holders.replicas) {
      if (is_one_(replica)) ranks.push_back(replica);
    }
    if (!std::is_sorted(ranks.begin(), ranks.end())) std::sort(ranks.begin(), ranks.end());
    return ranks;
  }
  bool are_any() const {
    for (std::uint32_t s = 0; counted_ != nullptr && s < counted_->plan->shards.size(); ++s) {
      if (!of(s).empty()) return true;
    }
    return false;
  }
  CopyReport copy(std::uint32_t shard) const {
    return {{shard}, counted_->version, counted_->updates, counted_->digests->at(shard)};
  }

 private:
  const CountedRanks* counted_;
  const IsAmong is_one_;
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
      told += fmt::format("{}rank {} has {} (t = {})", told.empty() ? "" : ", ", seen.rank.value,
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

const DecisionRecord* newest_record(const Reports& reports, const std::optional<DecisionRecord>& known) {
  const DecisionRecord* newest = known ? &*known : nullptr;
  const auto age = [](const DecisionRecord& r) { return std::tie(r.step, r.generation); };
  const auto consider = [&](const std::optional<DecisionRecord>& record) {
    if (record && (newest == nullptr || age(*newest) < age(*record))) newest = &*record;
  };
  for (const RankReport& report : reports.named) consider(report.record);
  if (reports.counted != nullptr) consider(reports.counted->record);
  return newest;
}

}  // namespace

Cut decide_cut(const Reports& reports, const std::optional<DecisionRecord>& known, std::uint32_t shard_count) {
  Cut cut;
  const NamedCopies named(reports.named, shard_count);
  const CountedCopies counted(reports.counted);
  const DecisionRecord* record = newest_record(reports, known);
  if (record != nullptr) cut.step = record->step;
  for (const SeenCopy& seen : named.all()) cut.step = std::max(cut.step, seen.copy->version);
  if (counted.are_any()) cut.step = std::max(cut.step, reports.counted->version);
  if (record != nullptr && record->step == cut.step) cut.record = *record;
  if (cut.record) cut.updates = cut.record->updates;
  const bool counted_are_there = reports.counted != nullptr && reports.counted->version == cut.step;

  Copies copies;  // of one shard
  cut.holders.reserve(shard_count);
  for (std::uint32_t s = 0; s < shard_count; ++s) {
    FewRanks others = counted.of(s);
    if (counted_are_there && named.of(s).empty()) {  // most often: they agree, and nobody has anything else
      if (others.empty()) cut.lost.push_back({s});
      if (!others.empty() && !cut.record) cut.updates = std::max(cut.updates, reports.counted->updates);
      cut.holders.push_back(std::move(others));
      continue;
    }
    const CopyReport of_others = others.empty() ? CopyReport{} : counted.copy(s);
    copies.assign(named.of(s).begin(), named.of(s).end());
    for (const RankId rank : others) copies.push_back({rank, true, &of_others});
    FewRanks living, gone;
    for (const SeenCopy& seen : believed(copies, cut.step, cut.disagreements)) {
      (seen.alive ? living : gone).push_back(seen.rank);
      if (!cut.record) cut.updates = std::max(cut.updates, seen.copy->updates);
    }
    if (cut.record && cut.step.value > 0) {
      // The gradient of a process dies with it.
      for (const SeenCopy& seen : believed(copies, {cut.step.value - 1}, cut.disagreements)) {
        const bool is_believed = KINTSUGI_MUTANT(believes_a_stale_copy) && !seen.alive;
        if ((seen.alive && seen.copy->has_next_gradient) || is_believed) living.push_back(seen.rank);
      }
    }
    sort_unique(living);
    sort_unique(gone);
    for (const RankId rank : gone) living.push_back(rank);
    if (living.empty()) cut.lost.push_back({s});
    cut.holders.push_back(std::move(living));
  }
  return cut;
}

std::vector<FewRanks> reachable_copies(const Cut& cut, const Reports& reports, std::span<const PlanMember> members) {
  const ReportIndex said(reports);
  NodeIndex<PlanMember> members_on(members);
  const IsAmong is_member(members, [](const PlanMember& m) { return m.rank; });
  std::vector<FewRanks> reachable;
  reachable.reserve(cut.holders.size());
  for (const FewRanks& holders : cut.holders) {
    FewRanks& ranks = reachable.emplace_back();
    for (const RankId holder : holders) {
      if (!said.is_alive(holder))
        members_on.for_each_on(said.node_of(holder), [&](RankId rank) { ranks.push_back(rank); });
      else if (is_member(holder))
        ranks.push_back(holder);
    }
    sort_unique(ranks);
  }
  return reachable;
}

}  // namespace kintsugi
