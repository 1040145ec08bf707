#include "transport/shm/block_allocator.hpp"

#include <iterator>

#include "base/assert.hpp"
#include "base/units.hpp"

namespace kintsugi::transport::shm {

constexpr std::size_t kAlignment = 64;

BlockAllocator::BlockAllocator(std::size_t bytes) {
  KINTSUGI_ASSERT(bytes % kAlignment == 0);
  if (bytes > 0) gaps_.emplace(0, bytes);
}

std::optional<std::size_t> BlockAllocator::take(std::size_t bytes) {
  const std::size_t need = align_up(bytes, kAlignment);
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    const auto [offset, length] = *gap;
    if (length < need) continue;
    gaps_.erase(gap);
    if (length > need) gaps_.emplace(offset + need, length - need);
    return offset;
  }
  return std::nullopt;
}

void BlockAllocator::give_back(std::size_t offset, std::size_t bytes) {
  std::size_t length = align_up(bytes, kAlignment);
  auto next = gaps_.lower_bound(offset);
  KINTSUGI_ASSERT(next == gaps_.end() || offset + length <= next->first);
  if (next != gaps_.end() && next->first == offset + length) {
    length += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin()) {
    const auto before = std::prev(next);
    KINTSUGI_ASSERT(before->first + before->second <= offset);
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  gaps_.emplace(offset, length);
}

}  // namespace kintsugi::transport::shm
