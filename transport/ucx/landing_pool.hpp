// Memory in which large messages land, reused because a first touch costs more than the copy (DEPENDENCIES, "memory
// first"), and bounded: beyond the budget a message stays with its sender until something is released or it is asked
// for.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

namespace kintsugi::transport::ucx {

class LandingPool {
 public:
  explicit LandingPool(std::size_t budget_bytes) : budget_bytes_(budget_bytes) {}

  struct Block {
    std::size_t capacity = 0;
    std::unique_ptr<std::byte[]> memory;
    std::byte* data = nullptr;  // 64-byte aligned in `memory`
  };
  enum class Demand : unsigned char { within_budget, must };

  // An empty block (data null) when the budget is spent and the demand is not `must`.
  Block take(std::size_t bytes, Demand demand);
  void give_back(Block block);
  std::size_t held_bytes() const { return held_bytes_; }

 private:
  std::size_t budget_bytes_;
  std::size_t held_bytes_ = 0;  // taken and spare
  std::multimap<std::size_t, Block> spare_;
};

}  // namespace kintsugi::transport::ucx
