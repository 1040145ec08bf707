// Places of ranks, or nodes, in an ascending list. They are numbered as they come and few are gone, so that the place is
// nearly the number: a look-up costs the logarithm of the holes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/ids.hpp"

namespace kintsugi {

// Where `rank` is in `items`, which ascend by what `rank_of` gives; empty: it is not there.
template <class Id, class Item, class RankOf>
std::optional<std::size_t> place_of(Id rank, const std::vector<Item>& items, RankOf rank_of) {
  if (items.empty() || rank < rank_of(items.front()) || rank_of(items.back()) < rank) return std::nullopt;
  const std::size_t offset = rank.value - rank_of(items.front()).value;
  const std::size_t holes = rank_of(items.back()).value - rank_of(items.front()).value + 1 - items.size();
  const auto first = items.begin() + static_cast<std::ptrdiff_t>(offset - std::min(offset, holes));
  const auto end = items.begin() + static_cast<std::ptrdiff_t>(std::min(offset + 1, items.size()));
  const auto at = std::lower_bound(first, end, rank, [&](const Item& item, Id r) { return rank_of(item) < r; });
  if (at == end || rank_of(*at) != rank) return std::nullopt;
  return static_cast<std::size_t>(at - items.begin());
}

}  // namespace kintsugi
