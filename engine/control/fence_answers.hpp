// Who must still answer a fence, and what those say who have.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/flat_set.hpp"
#include "engine/control/recovery.hpp"

namespace kintsugi {

class FenceAnswers {
 public:
  FenceAnswers() = default;
  FenceAnswers(RankSet ranks, NodeSet nodes) : ranks_(std::move(ranks)), nodes_(std::move(nodes)) {}

  // False: it is not awaited (any more).
  bool take(RankReport report);
  bool take(NodeId node, const std::vector<RankReport>& left_behind);
  // All ranks of said.plan that are awaited, but `ranks`, say `said`; all nodes but `nodes` have nothing of ranks that are
  // gone. False: nobody of them is awaited.
  bool take_others(const RankSet& ranks, const NodeSet& nodes, CountedRanks said);
  // A node is lost, and `ranks` with it: what they said counts no more, nor what was left there.
  void forget(NodeId node, const RankSet& ranks);

  bool complete() const { return heard_ranks_.size() == ranks_.size() && heard_nodes_.size() == nodes_.size(); }
  RankSet silent_ranks() const { return difference(ranks_, heard_ranks_); }
  NodeSet silent_nodes() const { return difference(nodes_, heard_nodes_); }
  // One a rank that is named; they are read once.
  std::vector<RankReport> take_reports();
  const CountedRanks& counted() const { return counted_; }
  bool operator==(const FenceAnswers&) const = default;

 private:
  RankSet ranks_, heard_ranks_;  // asked, and of them those that have answered
  NodeSet nodes_, heard_nodes_;
  std::map<RankId, RankReport> living_, left_behind_;
  CountedRanks counted_;
};

}  // namespace kintsugi
