#include "transport/ucx/landing_pool.hpp"

#include <cstdint>
#include <iterator>

#include "base/units.hpp"

namespace kintsugi::transport::ucx {

constexpr std::size_t kAlignment = 64;

LandingPool::Block LandingPool::take(std::size_t bytes, Demand demand) {
  const auto fit = spare_.lower_bound(bytes);
  if (fit != spare_.end() && fit->first <= 2 * bytes) {
    Block block = std::move(fit->second);
    spare_.erase(fit);
    return block;
  }
  const std::size_t capacity = align_up(bytes, kAlignment);
  while (held_bytes_ + capacity > budget_bytes_ && !spare_.empty()) {
    const auto largest = std::prev(spare_.end());
    held_bytes_ -= largest->first;
    spare_.erase(largest);
  }
  if (held_bytes_ + capacity > budget_bytes_ && demand == Demand::within_budget) return {};
  Block block;
  block.capacity = capacity;
  block.memory.reset(new std::byte[capacity + kAlignment]);
  block.data = reinterpret_cast<std::byte*>(align_up(reinterpret_cast<std::uintptr_t>(block.memory.get()), kAlignment));
  held_bytes_ += capacity;
  return block;
}

void LandingPool::give_back(Block block) {
  if (block.data == nullptr) return;
  if (held_bytes_ > budget_bytes_) {
    held_bytes_ -= block.capacity;
    return;
  }
  const std::size_t capacity = block.capacity;
  spare_.emplace(capacity, std::move(block));
}

}  // namespace kintsugi::transport::ucx
