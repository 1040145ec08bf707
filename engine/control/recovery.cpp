#include "engine/control/recovery.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/mutant.hpp"
#include "base/probe.hpp"

namespace kintsugi {

namespace {

struct SeenCopy {
  const RankReport* by = nullptr;
  const CopyReport* copy = nullptr;
};
using Copies = std::vector<SeenCopy>;

std::vector<Copies> copies_by_shard(std::span<const RankReport> reports, std::uint32_t shard_count) {
  std::vector<Copies> copies(shard_count);
  for (const RankReport& report : reports) {
    for (const CopyReport& copy : report.copies) {
      if (copy.shard.value < shard_count) copies[copy.shard.value].push_back({&report, &copy});
    }
  }
  return copies;
}

// Those at `version`. Where they differ, only what strictly most of them agree on is believed: two that differ say that
// one of them is corrupt, and not which.
Copies believed(const Copies& copies, Step version, std::vector<std::string>& disagreements) {
  std::map<std::pair<std::uint64_t, Digest>, Copies> groups;
  for (const SeenCopy& seen : copies) {
    if (seen.copy->version == version) groups[{seen.copy->updates, seen.copy->digest}].push_back(seen);
  }
  if (groups.empty()) return {};
  if (groups.size() == 1) return groups.begin()->second;
  std::size_t most = 0, times = 0;
  std::string told;
  for (const auto& [value, group] : groups) {
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

std::map<RankId, const RankReport*> by_rank(std::span<const RankReport> reports) {
  std::map<RankId, const RankReport*> map;
  for (const RankReport& report : reports) map[report.rank] = &report;
  KINTSUGI_ASSERT_MSG(map.size() == reports.size(), "two reports of one rank");
  return map;
}

}  // namespace

Cut decide_cut(std::span<const RankReport> reports, const std::optional<DecisionRecord>& known,
               std::uint32_t shard_count) {
  Cut cut;
  const std::vector<Copies> copies = copies_by_shard(reports, shard_count);
  const DecisionRecord* record = newest_record(reports, known);
  if (record != nullptr) cut.step = record->step;
  for (const Copies& of_shard : copies) {
    for (const SeenCopy& seen : of_shard) cut.step = std::max(cut.step, seen.copy->version);
  }
  if (record != nullptr && record->step == cut.step) cut.record = *record;
  if (cut.record) cut.updates = cut.record->updates;

  for (std::uint32_t s = 0; s < shard_count; ++s) {
    std::set<std::pair<bool, RankId>> holders;  // (gone, rank)
    for (const SeenCopy& seen : believed(copies[s], cut.step, cut.disagreements)) {
      holders.insert({!seen.by->alive, seen.by->rank});
      if (!cut.record) cut.updates = std::max(cut.updates, seen.copy->updates);
    }
    if (cut.record && cut.step.value > 0) {
      // The gradient of a process dies with it.
      for (const SeenCopy& seen : believed(copies[s], {cut.step.value - 1}, cut.disagreements)) {
        const bool is_believed = KINTSUGI_MUTANT(believes_a_stale_copy) && !seen.by->alive;
        if ((seen.by->alive && seen.copy->has_next_gradient) || is_believed) holders.insert({false, seen.by->rank});
      }
    }
    cut.holders.emplace_back();
    for (const auto& [gone, rank] : holders) cut.holders.back().push_back(rank);
    if (holders.empty()) cut.lost.push_back({s});
  }
  return cut;
}

std::vector<std::vector<RankId>> reachable_copies(const Cut& cut, std::span<const RankReport> reports,
                                                  std::span<const PlanMember> members) {
  const std::map<RankId, const RankReport*> report_of = by_rank(reports);
  std::vector<std::vector<RankId>> reachable;
  for (const std::vector<RankId>& holders : cut.holders) {
    std::set<RankId> ranks;
    for (const RankId holder : holders) {
      const RankReport& report = *report_of.at(holder);
      for (const PlanMember& member : members) {
        if (report.alive ? member.rank == holder : member.node == report.node) ranks.insert(member.rank);
      }
    }
    reachable.emplace_back(ranks.begin(), ranks.end());
  }
  return reachable;
}

namespace {

// Finds a source for every copy that is missing, one shard after the other.
class Mover {
 public:
  Mover(const Plan& plan, const Cut& cut, std::span<const RankReport> reports)
      : plan_(plan), cut_(cut), report_of_(by_rank(reports)) {}

  std::vector<ShardMove> run() {
    for (std::uint32_t s = 0; s < plan_.shards.size(); ++s) move({s});
    return std::move(moves_);
  }

 private:
  void move(ShardId shard) {
    std::set<RankId> sources, left_behind;
    for (const RankId holder : cut_.holders[shard.value]) {
      (report_of_.at(holder)->alive ? sources : left_behind).insert(holder);
    }
    const ShardHolders& holders = plan_.shards[shard.value];
    std::set<RankId> lacking{holders.primary};
    lacking.insert(holders.replicas.begin(), holders.replicas.end());
    for (const RankId rank : sources) lacking.erase(rank);

    take_over(shard, lacking, left_behind, sources);
    if (sources.empty()) pass_on(shard, left_behind, sources);
    KINTSUGI_ASSERT_MSG(!sources.empty(), "a shard of the plan is out of its members' reach");
    for (const RankId to : lacking) moves_.push_back({shard, to, choose(sources, to), false});
  }

  // One memory serves one receiver.
  void take_over(ShardId shard, std::set<RankId>& lacking, std::set<RankId>& left_behind, std::set<RankId>& sources) {
    for (auto from = left_behind.begin(); from != left_behind.end();) {
      const NodeId node = report_of_.at(*from)->node;
      const auto to = std::find_if(lacking.begin(), lacking.end(), [&](RankId r) { return plan_.node_of(r) == node; });
      if (to == lacking.end()) {
        ++from;
        continue;
      }
      KINTSUGI_PROBE("moves: memory of a gone rank is taken over");
      moves_.push_back({shard, *to, *from, true});
      sources.insert(*to);
      lacking.erase(to);
      from = left_behind.erase(from);
    }
  }

  // All memory lies on nodes without a holder: a member there takes it over to pass it on.
  void pass_on(ShardId shard, const std::set<RankId>& left_behind, std::set<RankId>& sources) {
    for (const RankId from : left_behind) {
      const NodeId node = report_of_.at(from)->node;
      for (const PlanRank& member : plan_.ranks) {
        if (member.node != node) continue;
        KINTSUGI_PROBE("moves: memory is taken over to be passed on");
        moves_.push_back({shard, member.rank, from, true});
        sources.insert(member.rank);
        return;
      }
    }
  }

  // On the receiver's node if there is one, then who has sent least.
  RankId choose(const std::set<RankId>& sources, RankId to) {
    if (KINTSUGI_MUTANT(takes_from_a_wrong_holder)) return plan_.ranks[plan_.root() == to ? 1 : 0].rank;
    const auto worse = [&](RankId from) {
      return std::tuple(plan_.node_of(from) != plan_.node_of(to), sent_[from], from);
    };
    const RankId best =
        *std::min_element(sources.begin(), sources.end(), [&](RankId a, RankId b) { return worse(a) < worse(b); });
    ++sent_[best];
    return best;
  }

  const Plan& plan_;
  const Cut& cut_;
  const std::map<RankId, const RankReport*> report_of_;
  std::map<RankId, std::uint64_t> sent_;
  std::vector<ShardMove> moves_;
};

std::vector<KeptSum> sums_left(const Plan& plan, Step step, std::span<const RankReport> reports) {
  const LaneTree tree(plan.lanes);
  std::vector<KeptSum> found;
  for (const RankReport& report : reports) {
    if (!report.alive || report.sums.step != step || !plan.has(report.rank)) continue;
    if (plan.is_idle(report.rank)) continue;  // it is about to leave
    for (const LayerSum& sum : report.sums.sums) {
      const bool is_of_job = sum.layer.value < plan.stages.back().layers.end && tree.contains(sum.node);
      if (is_of_job) found.push_back({sum, report.rank});
    }
  }
  return choose_sums(plan, std::move(found));
}

class Begun {
 public:
  Begun(const StepUnderWay& interrupted, Step step, std::span<const RankReport> reports)
      : interrupted_(interrupted), step_(step) {
    for (const RankReport& report : reports) {
      if (!report.alive) continue;
      alive_.insert(report.rank);
      if (report.sums.step == step) lanes_.insert(report.sums.begun.begin(), report.sums.begun.end());
    }
  }

  bool has(LaneId lane) const {
    if (lanes_.contains(lane)) return true;
    for (std::uint32_t s = 0; s < interrupted_.plan.stages.size(); ++s) {
      if (!alive_.contains(interrupted_.plan.rank_of({s}, lane))) return true;
    }
    if (step_.value != interrupted_.from.value + 1) return false;
    return std::any_of(interrupted_.sums.begin(), interrupted_.sums.end(), [&](const KeptSum& k) {
      return !alive_.contains(k.rank) && lane.value >= k.sum.node.first && lane.value < k.sum.node.end();
    });
  }

 private:
  const StepUnderWay& interrupted_;
  const Step step_;
  std::set<RankId> alive_;
  std::set<LaneId> lanes_;
};

}  // namespace

Transition plan_transition(const Plan& plan, const Cut& cut, std::span<const RankReport> reports,
                           const std::optional<StepUnderWay>& interrupted) {
  KINTSUGI_ASSERT_MSG(cut.lost.empty() && cut.holders.size() == plan.shards.size(), "no plan can hold what is lost");
  Transition transition{cut.step, cut.updates, cut.record, Mover(plan, cut, reports).run()};
  if (KINTSUGI_MUTANT(leaves_a_record_incomplete)) transition.record.reset();
  if (!interrupted) return transition;
  const Step step{cut.step.value + 1};
  transition.sums = sums_left(plan, step, reports);
  if (!transition.sums.empty()) KINTSUGI_PROBE("redo: sums are kept");
  const Begun begun(*interrupted, step, reports);
  for (const LaneId lane : Redo(plan, transition.sums).lanes()) {
    if (begun.has(lane)) transition.again.push_back(lane);
  }
  return transition;
}

}  // namespace kintsugi
