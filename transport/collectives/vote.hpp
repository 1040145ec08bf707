// The vote of a step (DESIGN section 6): contributions are gathered up the control tree, the root decides, the decision
// goes down the same way. What is voted on is the caller's; the bytes pass through unread.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "transport/collectives/control_tree.hpp"
#include "transport/point_to_point.hpp"

namespace kintsugi::transport::collectives {

using Bytes = std::vector<std::byte>;

struct Vote {
  Step step;
  std::uint32_t phase = 0;  // several votes of one step
  // Both pure. Own contribution and the children's, in the tree's order; to be the same whatever the tree, `merge` is a
  // union, and sums are left to `decide`.
  std::function<Result<Bytes>(std::span<const std::byte>, std::span<const std::byte>)> merge;
  std::function<Result<Bytes>(std::span<const std::byte>)> decide;  // called at the root alone
};

// The decision's bytes, the same at every rank. A contribution of a subtree, and the decision, hold at most
// kMaxSmallMessageBytes: Error{tell_user} beyond.
Result<Bytes> vote(PointToPoint& links, const ControlTree& tree, RankId self, Bytes own, const Vote& vote,
                   Instant deadline);

}  // namespace kintsugi::transport::collectives
