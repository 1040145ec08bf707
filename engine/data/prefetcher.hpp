// Keeps the next microbatches of a rank ready in host memory. One thread reads them in order into a ring of staging
// buffers and stays a bounded number ahead; the disk is asked for twice that.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "engine/data/batch_reader.hpp"

namespace kintsugi {

// A microbatch that a rank works in each step.
struct MicrobatchSlot {
  LaneId lane;
  std::uint32_t microbatch = 0;
};

class Prefetcher {
  struct State;

 public:
  // A microbatch in a staging buffer, which is reused once the lease is gone: keep it until the copy to the device is
  // done. May outlive the prefetcher.
  class Lease {
   public:
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { release(); }

    MicrobatchKey key() const { return key_; }
    std::span<const std::int32_t> tokens() const { return tokens_; }    // (rows) int32
    std::span<const std::int32_t> targets() const { return targets_; }  // (rows) int32
    void release();

   private:
    friend class Prefetcher;
    Lease(std::shared_ptr<State> state, std::size_t buffer);
    std::shared_ptr<State> state_;
    std::size_t buffer_ = 0;
    MicrobatchKey key_;
    std::span<const std::int32_t> tokens_;
    std::span<const std::int32_t> targets_;
  };

  // `work`: what the rank works in every step, in its order, from the step after `from` on; in that step only what is in
  // `first`, where given. `depth` >= 1 buffers. Another plan means another prefetcher.
  Prefetcher(std::shared_ptr<const MicrobatchSource> source, std::vector<MicrobatchSlot> work, Step from,
             std::size_t depth, std::optional<std::vector<MicrobatchSlot>> first = std::nullopt);
  // Waits for the read in progress; call stop first where that must be bounded.
  ~Prefetcher();

  // The next microbatch in order. Error{retry}: not ready by `deadline` (SteadyClock). Error{cancelled}: stopped. Any
  // other: the source failed; it is returned by this and every later call, after the microbatches read before it. Any
  // thread.
  Result<Lease> take(Instant deadline);
  // Ends the thread and every take, now and later. Error{restart_process}: the thread still sits in a read at
  // `deadline` (a dead disk); it is left behind, with everything it touches.
  Result<void> stop(Instant deadline);

 private:
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace kintsugi
