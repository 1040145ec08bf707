// How a generation begins: who gives which copy to whom, and what is left of the step that a fault interrupted.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "base/mutant.hpp"
#include "base/probe.hpp"
#include "engine/control/recovery.hpp"
#include "engine/control/report_index.hpp"

namespace kintsugi {

namespace {

// Finds a source for every copy that is missing, one shard after the other.
class Mover {
 public:
  Mover(const Plan& plan, const Cut& cut, const Reports& reports)
      : plan_(plan), cut_(cut), said_(reports), members_on_(plan.ranks) {}

  std::vector<ShardMove> run() {
    for (std::uint32_t s = 0; s < plan_.shards.size(); ++s) move({s});
    return std::move(moves_);
  }

 private:
  using Ranks = FewRanks;  // ascending

  void move(ShardId shard) {
    if (all_have(shard)) return;  // most often
    Ranks sources, left_behind;
    for (const RankId holder : cut_.holders[shard.value]) {
      (said_.is_alive(holder) ? sources : left_behind).push_back(holder);
    }
    const ShardHolders& holders = plan_.shards[shard.value];
    Ranks lacking = holders.replicas;
    lacking.push_back(holders.primary);
    erase_if(lacking, [&](RankId rank) { return has(sources, rank); });
    if (lacking.empty()) return;
    sort_unique(lacking);
    sort_unique(sources);
    sort_unique(left_behind);

    take_over(shard, lacking, left_behind, sources);
    if (sources.empty()) pass_on(shard, left_behind, sources);
    KINTSUGI_ASSERT_MSG(!sources.empty(), "a shard of the plan is out of its members' reach");
    for (const RankId to : lacking) moves_.push_back({shard, to, choose(sources, to), false});
  }

  bool all_have(ShardId shard) const {
    const Ranks& have = cut_.holders[shard.value];
    const auto has_it = [&](RankId rank) { return has(have, rank) && said_.is_alive(rank); };
    const ShardHolders& holders = plan_.shards[shard.value];
    return has_it(holders.primary) && std::all_of(holders.replicas.begin(), holders.replicas.end(), has_it);
  }

  // One memory serves one receiver.
  void take_over(ShardId shard, Ranks& lacking, Ranks& left_behind, Ranks& sources) {
    erase_if(left_behind, [&](RankId from) {
      const NodeId node = said_.node_of(from);
      const auto to = std::find_if(lacking.begin(), lacking.end(), [&](RankId r) { return plan_.node_of(r) == node; });
      if (to == lacking.end()) return false;
      KINTSUGI_PROBE("moves: memory of a gone rank is taken over");
      moves_.push_back({shard, *to, from, true});
      sources.push_back(*to);
      lacking.erase(to);
      return true;
    });
  }

  // All memory lies on nodes without a holder: a member there takes it over to pass it on.
  void pass_on(ShardId shard, const Ranks& left_behind, Ranks& sources) {
    for (const RankId from : left_behind) {
      std::optional<RankId> member;
      members_on_.for_each_on(said_.node_of(from), [&](RankId rank) { member = member.value_or(rank); });
      if (!member) continue;
      KINTSUGI_PROBE("moves: memory is taken over to be passed on");
      moves_.push_back({shard, *member, from, true});
      sources.push_back(*member);
      return;
    }
  }

  // On the receiver's node if there is one, then who has sent least.
  RankId choose(const Ranks& sources, RankId to) {
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
  const ReportIndex said_;
  NodeIndex<PlanRank> members_on_;
  std::map<RankId, std::uint64_t> sent_;
  std::vector<ShardMove> moves_;
};

std::vector<KeptSum> sums_left(const Plan& plan, Step step, const Reports& reports) {
  const LaneTree tree(plan.lanes);
  const auto has_sums = [&](const RankReport& r) { return r.alive && r.sums.step == step && !r.sums.sums.empty(); };
  const bool are_any = (reports.counted != nullptr && !reports.counted->sums.empty()) ||
                       std::any_of(reports.named.begin(), reports.named.end(), has_sums);
  if (!are_any) return {};
  const std::vector<RankId> idle = plan.idle_ranks();
  std::vector<KeptSum> found;
  const auto stays = [&](RankId rank) {
    return plan.has(rank) && !std::binary_search(idle.begin(), idle.end(), rank);  // or it is about to leave
  };
  const auto find = [&](const LayerSum& sum, RankId rank) {
    const bool is_of_job = sum.layer.value < plan.stages.back().layers.end && tree.contains(sum.node);
    if (is_of_job) found.push_back({sum, rank});
  };
  for (const RankReport& report : reports.named) {
    if (!report.alive || report.sums.step != step || !stays(report.rank)) continue;
    for (const LayerSum& sum : report.sums.sums) find(sum, report.rank);
  }
  if (reports.counted != nullptr && reports.counted->under_way == step) {
    for (const KeptSum& kept : reports.counted->sums) {
      if (stays(kept.rank)) find(kept.sum, kept.rank);
    }
  }
  return choose_sums(plan, std::move(found));
}

// By lane: somebody began it in `step`. Of who is gone nobody knows: all it may have done counts.
std::vector<bool> begun_lanes(const StepUnderWay& interrupted, Step step, const Reports& reports) {
  const std::uint32_t lanes = interrupted.plan.lanes;
  const ReportIndex said(reports);
  std::vector<bool> begun(lanes, false);
  const auto mark = [&](std::uint32_t first, std::uint32_t end) {
    for (std::uint32_t lane = first; lane < std::min(end, lanes); ++lane) begun[lane] = true;
  };
  for (const RankReport& report : reports.named) {
    if (!report.alive || report.sums.step != step) continue;
    for (const LaneId lane : report.sums.begun) mark(lane.value, lane.value + 1);
  }
  if (reports.counted != nullptr && reports.counted->under_way == step) {
    for (const LaneId lane : reports.counted->begun) mark(lane.value, lane.value + 1);
  }
  for (const StagePlan& stage : interrupted.plan.stages) {
    for (const CellBlock& block : stage.blocks) {
      if (!said.is_alive(block.rank)) mark(block.lanes.first, block.lanes.end);
    }
  }
  if (step.value != interrupted.from.value + 1) return begun;
  for (const KeptSum& k : interrupted.sums) {
    if (!said.is_alive(k.rank)) mark(k.sum.node.first, k.sum.node.end());
  }
  return begun;
}

}  // namespace

Transition plan_transition(const Plan& plan, const Cut& cut, const Reports& reports,
                           const std::optional<StepUnderWay>& interrupted) {
  KINTSUGI_ASSERT_MSG(cut.lost.empty() && cut.holders.size() == plan.shards.size(), "no plan can hold what is lost");
  Transition transition{cut.step, cut.updates, cut.record, Mover(plan, cut, reports).run()};
  if (KINTSUGI_MUTANT(leaves_a_record_incomplete)) transition.record.reset();
  if (!interrupted) return transition;
  const Step step{cut.step.value + 1};
  transition.sums = sums_left(plan, step, reports);
  if (!transition.sums.empty()) KINTSUGI_PROBE("redo: sums are kept");
  const std::vector<bool> begun = begun_lanes(*interrupted, step, reports);
  for (const LaneId lane : Redo(plan, transition.sums).lanes()) {
    if (begun[lane.value]) transition.again.push_back(lane);
  }
  return transition;
}

}  // namespace kintsugi
