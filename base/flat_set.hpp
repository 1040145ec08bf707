// A set in one block of memory: items ascend. Made and read many times, changed seldom, and then most often at its end: a
// copy costs what a copy of the block costs, a look-up a logarithm, a change in the middle the items behind it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include "base/ids.hpp"

namespace kintsugi {

template <class T>
class FlatSet {
 public:
  using value_type = T;
  using const_iterator = typename std::vector<T>::const_iterator;
  using iterator = const_iterator;

  FlatSet() = default;
  FlatSet(std::initializer_list<T> items) : FlatSet(std::vector<T>(items)) {}
  // In any order, any number of times.
  explicit FlatSet(std::vector<T> items) : items_(std::move(items)) {
    if (std::adjacent_find(items_.begin(), items_.end(), std::greater_equal<T>()) == items_.end()) return;
    std::sort(items_.begin(), items_.end());
    items_.erase(std::unique(items_.begin(), items_.end()), items_.end());
  }

  const_iterator begin() const { return items_.begin(); }
  const_iterator end() const { return items_.end(); }
  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  const T& front() const { return items_.front(); }
  const T& back() const { return items_.back(); }
  const std::vector<T>& items() const { return items_; }

  bool contains(T item) const {
    if (items_.empty() || items_.back() < item) return false;
    return std::binary_search(items_.begin(), items_.end(), item);
  }
  // False: it is there already.
  bool insert(T item) {
    if (items_.empty() || items_.back() < item) {
      items_.push_back(item);
      return true;
    }
    const auto at = std::lower_bound(items_.begin(), items_.end(), item);
    if (*at == item) return false;
    items_.insert(at, item);
    return true;
  }
  // False: it is not there.
  bool erase(T item) {
    const auto at = std::lower_bound(items_.begin(), items_.end(), item);
    if (at == items_.end() || *at != item) return false;
    items_.erase(at);
    return true;
  }
  void clear() { items_.clear(); }
  template <class Predicate>
  friend std::size_t erase_if(FlatSet& set, const Predicate& predicate) {
    return std::erase_if(set.items_, predicate);
  }
  // The items of `a` that are not in `b`.
  friend FlatSet difference(const FlatSet& a, const FlatSet& b) {
    FlatSet rest;
    std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest.items_));
    return rest;
  }
  friend FlatSet together(const FlatSet& a, const FlatSet& b) {
    FlatSet both;
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both.items_));
    return both;
  }
  bool operator==(const FlatSet&) const = default;

 private:
  std::vector<T> items_;
};

using RankSet = FlatSet<RankId>;
using NodeSet = FlatSet<NodeId>;

}  // namespace kintsugi
