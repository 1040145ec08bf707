// What ranks have been given so far, by position, and who of a run of positions has least, in O(log n).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.hpp"

namespace kintsugi {

class LoadTree {
 public:
  // A rank may stand at several positions. Loads are elements; as many as ranks.
  LoadTree(std::vector<RankId> ranks, std::vector<std::int64_t> loads);

  std::size_t size() const { return ranks_.size(); }
  RankId rank(std::size_t at) const { return ranks_[at]; }
  std::int64_t load(std::size_t at) const { return loads_[at]; }
  void set(std::size_t at, std::int64_t load);
  // The position in [first, end) with the least load, then the lowest rank; empty: there is none.
  std::optional<std::size_t> least(std::size_t first, std::size_t end) const;

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  std::size_t better(std::size_t a, std::size_t b) const;

  std::vector<RankId> ranks_;
  std::vector<std::int64_t> loads_;
  std::vector<std::size_t> best_;  // a binary tree in an array: the better of both children; leaves from size() on
};

}  // namespace kintsugi
