// A list of few small items, kept in place: one of up to N allocates nothing, and a table of such lists is one block of
// memory. What it offers is what std::vector does of the same name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

namespace kintsugi {

template <class T, std::uint32_t N>
class ShortList {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> && N > 0);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  ShortList() {}
  ShortList(std::initializer_list<T> items) { append(items.begin(), items.end()); }
  ShortList(const std::vector<T>& items) {
    append(items.data(), items.data() + items.size());
  }  // NOLINT: the same list
  ShortList(const ShortList& other) { append(other.begin(), other.end()); }
  ShortList(ShortList&& other) noexcept { take(other); }
  ShortList& operator=(const ShortList& other) {
    if (this == &other) return *this;
    size_ = 0;
    append(other.begin(), other.end());
    return *this;
  }
  ShortList& operator=(ShortList&& other) noexcept {
    if (this == &other) return *this;
    release();
    take(other);
    return *this;
  }
  ~ShortList() { release(); }
  operator std::vector<T>() const { return {begin(), end()}; }  // NOLINT(google-explicit-constructor): the same list

  T* begin() { return capacity_ == N ? here_ : elsewhere_; }
  T* end() { return begin() + size_; }
  const T* begin() const { return capacity_ == N ? here_ : elsewhere_; }
  const T* end() const { return begin() + size_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](std::size_t at) { return begin()[at]; }
  const T& operator[](std::size_t at) const { return begin()[at]; }
  const T& front() const { return *begin(); }
  const T& back() const { return begin()[size_ - 1]; }

  void push_back(T item) {
    if (size_ == capacity_) grow(size_ + 1);
    begin()[size_++] = item;
  }
  void clear() { size_ = 0; }
  iterator erase(const_iterator at) { return erase(at, at + 1); }
  iterator erase(const_iterator first, const_iterator last) {
    T* const to = begin() + (first - begin());
    size_ = static_cast<std::uint32_t>(std::copy(last, static_cast<const T*>(end()), to) - begin());
    return to;
  }
  template <class Predicate>
  friend std::size_t erase_if(ShortList& list, const Predicate& predicate) {
    const std::size_t before = list.size();
    list.erase(std::remove_if(list.begin(), list.end(), predicate), list.end());
    return before - list.size();
  }
  friend bool operator==(const ShortList& a, const ShortList& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  void append(const T* first, const T* last) {
    const auto count = static_cast<std::uint32_t>(last - first);
    if (size_ + count > capacity_) grow(size_ + count);
    std::copy(first, last, end());
    size_ += count;
  }
  void grow(std::uint32_t least) {
    const std::uint32_t capacity = std::max(least, 2 * capacity_);
    T* const larger = new T[capacity];
    std::copy(begin(), end(), larger);
    release();
    elsewhere_ = larger;
    capacity_ = capacity;
  }
  void release() {
    if (capacity_ != N) delete[] elsewhere_;
  }
  // This one owns nothing before, the other nothing after.
  void take(ShortList& other) {
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, N);
    if (capacity_ != N)
      elsewhere_ = other.elsewhere_;
    else
      std::copy(other.here_, other.here_ + size_, here_);
  }

  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = N;  // N: in place
  union {
    T here_[N];
    T* elsewhere_;
  };
};

}  // namespace kintsugi
