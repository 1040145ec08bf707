// The tree along which control and votes travel: a heap of fan-out 8 over the plan's ranks in the plan's order, so that
// 4,096 ranks are four hops deep. Rank arithmetic only.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/ids.hpp"

namespace kintsugi::transport::collectives {

class ControlTree {
 public:
  static constexpr std::size_t kFanOut = 8;

  // `ranks[0]` is the root; no rank twice (asserted).
  explicit ControlTree(std::vector<RankId> ranks);

  RankId root() const { return ranks_.front(); }
  // Both for ranks of the tree only (asserted).
  std::optional<RankId> parent(RankId rank) const;
  std::vector<RankId> children(RankId rank) const;

 private:
  std::size_t place(RankId rank) const;
  std::vector<RankId> ranks_;
};

}  // namespace kintsugi::transport::collectives
