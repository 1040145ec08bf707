// First-fit allocation of blocks in a bounded area; low addresses first, so that few pages are ever touched.
// Rank arithmetic only: it knows offsets, not memory.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace kintsugi::transport::shm {

class BlockAllocator {
 public:
  explicit BlockAllocator(std::size_t bytes);

  // An offset, a multiple of 64; nothing when no gap is wide enough now.
  std::optional<std::size_t> take(std::size_t bytes);
  void give_back(std::size_t offset, std::size_t bytes);

 private:
  std::map<std::size_t, std::size_t> gaps_;  // offset -> length; never adjacent
};

}  // namespace kintsugi::transport::shm
