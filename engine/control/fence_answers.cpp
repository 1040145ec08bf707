#include "engine/control/fence_answers.hpp"

#include "base/assert.hpp"

namespace kintsugi {

bool FenceAnswers::take(RankReport report) {
  if (silent_ranks_.erase(report.rank) == 0) return false;
  report.alive = true;
  living_[report.rank] = std::move(report);
  return true;
}

bool FenceAnswers::take(NodeId node, const std::vector<RankReport>& left_behind) {
  if (silent_nodes_.erase(node) == 0) return false;
  for (const RankReport& report : left_behind) {
    RankReport& gone = left_behind_[report.rank] = report;
    gone.alive = false;
    gone.node = node;
  }
  return true;
}

void FenceAnswers::forget(NodeId node, const std::set<RankId>& ranks) {
  silent_nodes_.erase(node);
  for (const RankId rank : ranks) {
    silent_ranks_.erase(rank);
    living_.erase(rank);
  }
  std::erase_if(left_behind_, [&](const auto& entry) { return entry.second.node == node; });
}

std::vector<RankReport> FenceAnswers::take_reports() {
  std::vector<RankReport> all;
  all.reserve(living_.size() + left_behind_.size());
  for (auto& [rank, report] : left_behind_) {
    KINTSUGI_ASSERT_MSG(!living_.contains(rank), "a rank that answered for itself was also left behind");
  }
  for (auto* reports : {&living_, &left_behind_}) {
    for (auto& [rank, report] : *reports) all.push_back(std::move(report));
    reports->clear();
  }
  return all;
}

}  // namespace kintsugi
