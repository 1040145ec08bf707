#include "transport/collectives/control_tree.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace kintsugi::transport::collectives {

ControlTree::ControlTree(std::vector<RankId> ranks) : ranks_(std::move(ranks)) {
  KINTSUGI_ASSERT(!ranks_.empty());
  std::vector<RankId> sorted = ranks_;
  std::sort(sorted.begin(), sorted.end());
  KINTSUGI_ASSERT_MSG(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "a rank is in a tree once");
}

std::size_t ControlTree::place(RankId rank) const {
  const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  KINTSUGI_ASSERT_MSG(found != ranks_.end(), "the rank is in the tree");
  return static_cast<std::size_t>(found - ranks_.begin());
}

std::optional<RankId> ControlTree::parent(RankId rank) const {
  const std::size_t at = place(rank);
  if (at == 0) return std::nullopt;
  return ranks_[(at - 1) / kFanOut];
}

std::vector<RankId> ControlTree::children(RankId rank) const {
  const std::size_t first = place(rank) * kFanOut + 1;
  std::vector<RankId> found;
  for (std::size_t i = first; i < std::min(first + kFanOut, ranks_.size()); ++i) found.push_back(ranks_[i]);
  return found;
}

}  // namespace kintsugi::transport::collectives
