#include "engine/control/fence_answers.hpp"

#include "base/assert.hpp"

namespace kintsugi {

bool FenceAnswers::take(RankReport report) {
  if (!ranks_.contains(report.rank) || !heard_ranks_.insert(report.rank)) return false;
  report.alive = true;
  living_[report.rank] = std::move(report);
  return true;
}

bool FenceAnswers::take(NodeId node, const std::vector<RankReport>& left_behind) {
  if (!nodes_.contains(node) || !heard_nodes_.insert(node)) return false;
  for (const RankReport& report : left_behind) {
    RankReport& gone = left_behind_[report.rank] = report;
    gone.alive = false;
    gone.node = node;
  }
  return true;
}

namespace {

// Ranks of `plan`; both ascend.
RankSet members_among(const RankSet& ranks, const Plan& plan) {
  std::vector<RankId> members;
  members.reserve(ranks.size());
  auto at = plan.ranks.begin();
  for (const RankId rank : ranks) {
    while (at != plan.ranks.end() && at->rank < rank) ++at;
    if (at != plan.ranks.end() && at->rank == rank) members.push_back(rank);
  }
  return RankSet(std::move(members));
}

}  // namespace

bool FenceAnswers::take_others(const RankSet& ranks, const NodeSet& nodes, CountedRanks said) {
  const NodeSet free_nodes = difference(silent_nodes(), nodes);
  said.ranks = members_among(difference(silent_ranks(), ranks), *said.plan);
  if (said.ranks.empty() && free_nodes.empty()) return false;
  heard_nodes_ = together(heard_nodes_, free_nodes);
  if (said.ranks.empty()) return true;
  heard_ranks_ = together(heard_ranks_, said.ranks);
  if (counted_.ranks.empty()) {
    counted_ = std::move(said);
  } else if (counted_.says_as(said)) {
    counted_.ranks = together(counted_.ranks, said.ranks);
    counted_.sums.insert(counted_.sums.end(), said.sums.begin(), said.sums.end());
    counted_.begun.insert(counted_.begun.end(), said.begun.begin(), said.begun.end());
  } else {  // who says something else is named
    for (RankReport& report : unfold(said)) living_[report.rank] = std::move(report);
  }
  return true;
}

void FenceAnswers::forget(NodeId node, const RankSet& ranks) {
  nodes_.erase(node);
  heard_nodes_.erase(node);
  for (const RankId rank : ranks) {
    ranks_.erase(rank);
    heard_ranks_.erase(rank);
    living_.erase(rank);
    counted_.ranks.erase(rank);
  }
  std::erase_if(counted_.sums, [&](const KeptSum& kept) { return ranks.contains(kept.rank); });
  std::erase_if(left_behind_, [&](const auto& entry) { return entry.second.node == node; });
}

std::vector<RankReport> FenceAnswers::take_reports() {
  std::vector<RankReport> all;
  all.reserve(living_.size() + left_behind_.size());
  for (auto& [rank, report] : left_behind_) {
    KINTSUGI_ASSERT_MSG(!living_.contains(rank) && !counted_.ranks.contains(rank),
                        "a rank that answered for itself was also left behind");
  }
  for (auto* reports : {&living_, &left_behind_}) {
    for (auto& [rank, report] : *reports) all.push_back(std::move(report));
    reports->clear();
  }
  return all;
}

}  // namespace kintsugi
