#include "engine/plan/load_tree.hpp"

#include <tuple>

#include "base/assert.hpp"

namespace kintsugi {

LoadTree::LoadTree(std::vector<RankId> ranks, std::vector<std::int64_t> loads)
    : ranks_(std::move(ranks)), loads_(std::move(loads)), best_(2 * ranks_.size(), kNone) {
  KINTSUGI_ASSERT(ranks_.size() == loads_.size());
  for (std::size_t at = 0; at < size(); ++at) best_[size() + at] = at;
  for (std::size_t node = size(); node-- > 1;) best_[node] = better(best_[2 * node], best_[2 * node + 1]);
}

void LoadTree::set(std::size_t at, std::int64_t load) {
  loads_.at(at) = load;
  for (std::size_t node = (size() + at) / 2; node > 0; node /= 2) {
    best_[node] = better(best_[2 * node], best_[2 * node + 1]);
  }
}

std::optional<std::size_t> LoadTree::least(std::size_t first, std::size_t end) const {
  KINTSUGI_ASSERT(first <= end && end <= size());
  std::size_t best = kNone;
  for (first += size(), end += size(); first < end; first /= 2, end /= 2) {
    if (first % 2 == 1) best = better(best, best_[first++]);
    if (end % 2 == 1) best = better(best, best_[--end]);
  }
  return best == kNone ? std::nullopt : std::optional(best);
}

std::size_t LoadTree::better(std::size_t a, std::size_t b) const {
  if (a == kNone || b == kNone) return a == kNone ? b : a;
  return std::tie(loads_[b], ranks_[b]) < std::tie(loads_[a], ranks_[a]) ? b : a;
}

}  // namespace kintsugi
