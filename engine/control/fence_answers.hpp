// Who must still answer a fence, and what those say who have.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "engine/control/recovery.hpp"

namespace kintsugi {

class FenceAnswers {
 public:
  FenceAnswers() = default;
  FenceAnswers(std::set<RankId> ranks, std::set<NodeId> nodes)
      : silent_ranks_(std::move(ranks)), silent_nodes_(std::move(nodes)) {}

  // False: it is not awaited (any more).
  bool take(RankReport report);
  bool take(NodeId node, const std::vector<RankReport>& left_behind);
  // A node is lost, and `ranks` with it: what they said counts no more, nor what was left there.
  void forget(NodeId node, const std::set<RankId>& ranks);

  bool complete() const { return silent_ranks_.empty() && silent_nodes_.empty(); }
  const std::set<RankId>& silent_ranks() const { return silent_ranks_; }
  const std::set<NodeId>& silent_nodes() const { return silent_nodes_; }
  // One a rank; they are read once.
  std::vector<RankReport> take_reports();
  bool operator==(const FenceAnswers&) const = default;

 private:
  std::set<RankId> silent_ranks_;
  std::set<NodeId> silent_nodes_;
  std::map<RankId, RankReport> living_, left_behind_;
};

}  // namespace kintsugi
