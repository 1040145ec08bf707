// A stream of the CPU backend: a thread that takes work from a bounded ring, in order, with compute threads to help it.
// Kernels are enqueued as small closures built in place in the ring: nothing is allocated for an operation.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/philox.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/device.hpp"

namespace kintsugi::kernels::cpu {

class CpuStream final : public Stream {
 public:
  struct Options {
    int threads = 1;
    // Some value: before each piece of work the thread gives up its turn a drawn number of times.
    std::optional<std::uint64_t> delay_seed;
  };

  explicit CpuStream(Options options);
  // Ends when all enqueued work has.
  ~CpuStream() override;

  void enqueue(const char* name, std::function<Result<void>()> work) override;
  void wait(const Event& event) override;
  Event record() override;
  void recover() override;

  // Enqueues `kernel(ThreadPool&)`, which cannot fail.
  template <class Kernel>
  void launch(const char* name, Kernel kernel) {
    push(name, Kind::work, [this, kernel = std::move(kernel)]() -> Result<void> {
      kernel(pool_);
      return {};
    });
  }

  // Is the calling thread running a stream's work?
  static bool on_a_stream();

 private:
  // Work is dropped once the stream is poisoned; a mark runs always.
  enum class Kind : std::uint8_t { work, mark };

  // A callable built in a slot of the ring, run there and destroyed there.
  struct Slot {
    static constexpr std::size_t kBytes = 232;
    alignas(16) std::byte storage[kBytes];
    Result<void> (*run)(void* storage);
    void (*destroy)(void* storage);
    const char* name;  // for whoever looks at a core dump
    Kind kind;
  };
  static constexpr std::size_t kSlots = 256;  // more than a transformer block's operations

  template <class Work>
  void push(const char* name, Kind kind, Work work) {
    static_assert(sizeof(Work) <= Slot::kBytes && alignof(Work) <= 16);
    if (is_own_thread()) {
      if (kind == Kind::mark || !error_) finish(work());
      return;
    }
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return pushed_ - popped_ < kSlots; });
    Slot& slot = slots_[pushed_ % kSlots];
    new (slot.storage) Work(std::move(work));
    slot.run = [](void* storage) { return (*std::launder(static_cast<Work*>(storage)))(); };
    slot.destroy = [](void* storage) { std::launder(static_cast<Work*>(storage))->~Work(); };
    slot.name = name;
    slot.kind = kind;
    ++pushed_;
    if (idle_) work_.notify_one();
  }

  bool is_own_thread() const;
  void loop();
  void execute(Slot& slot);
  void delay();
  void finish(Result<void> outcome);

  const Options options_;
  ThreadPool pool_;
  std::optional<Error> error_;  // touched by the stream's thread alone
  std::uint64_t executed_ = 0;

  std::mutex mutex_;
  std::condition_variable work_, room_;
  const std::unique_ptr<Slot[]> slots_ = std::make_unique<Slot[]>(kSlots);
  std::uint64_t pushed_ = 0, popped_ = 0;
  bool idle_ = false, stopping_ = false;
  std::thread thread_;
};

// Copies between host memory and the executor's view of device memory, in the order of `stream`, a CpuStream.
void launch_copy(Stream& stream, void* to, const void* from, std::size_t bytes);

}  // namespace kintsugi::kernels::cpu
