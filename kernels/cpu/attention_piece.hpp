// The pieces of attention's work, and the working memory of one: float32 copies of a head's keys and values and a few
// tiles. The memory belongs to the compute thread, grows to the largest piece seen, and is freed with the thread.
#pragma once

#include <hwy/aligned_allocator.h>

#include <cstddef>
#include <cstdint>

#include "base/assert.hpp"
#include "kernels/ops.hpp"

namespace kintsugi::kernels::cpu {

constexpr std::int64_t kAttentionTile =
    64;  // queries and keys of a tile: a product's three tiles fit a first-level cache

// One query head of one sequence; every pointer is at the head's first element in the sequence's first row.
template <class T>
struct AttentionForwardPiece {
  T* out;
  float* log_sum_exp;  // (length)
  const T* q;
  const T* k;
  const T* v;
};

// One key/value head of one sequence with the query heads that share it, which lie side by side in a row.
template <class T>
struct AttentionBackwardPiece {
  T* grad_q;
  T* grad_k;
  T* grad_v;
  const T* grad_out;
  const T* out;
  const float* log_sum_exp;  // (query heads of the group, length)
  const T* q;
  const T* k;
  const T* v;
};

class AttentionScratch {
 public:
  // Room for `floats` in all; what was taken before is void.
  void begin(std::int64_t floats) {
    const auto wanted = static_cast<std::size_t>(floats);
    if (wanted > capacity_) {
      memory_ = hwy::AllocateAligned<float>(wanted);
      KINTSUGI_ASSERT_MSG(memory_ != nullptr, "no memory for attention's working set");
      capacity_ = wanted;
    }
    taken_ = 0;
  }
  // 64-byte aligned as long as every size taken is a multiple of 16; not initialised.
  float* take(std::int64_t floats) {
    float* const at = memory_.get() + taken_;
    taken_ += static_cast<std::size_t>(floats);
    KINTSUGI_ASSERT(taken_ <= capacity_);
    return at;
  }

 private:
  hwy::AlignedFreeUniquePtr<float[]> memory_;
  std::size_t capacity_ = 0;
  std::size_t taken_ = 0;
};

inline AttentionScratch& attention_scratch() {
  thread_local AttentionScratch scratch;
  return scratch;
}

}  // namespace kintsugi::kernels::cpu
