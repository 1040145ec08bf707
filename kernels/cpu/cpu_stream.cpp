#include "kernels/cpu/cpu_stream.hpp"

#include <sched.h>

#include <cstring>

#include "base/thread_name.hpp"

namespace kintsugi::kernels::cpu {

namespace {
thread_local const CpuStream* t_running_stream = nullptr;
}  // namespace

bool CpuStream::on_a_stream() {
  return t_running_stream != nullptr;
}
bool CpuStream::is_own_thread() const {
  return t_running_stream == this;
}

CpuStream::CpuStream(Options options) : options_(options), pool_(options.threads), thread_([this] { loop(); }) {}

CpuStream::~CpuStream() {
  KINTSUGI_ASSERT_MSG(!is_own_thread(), "a stream cannot be destroyed by its own work");
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  thread_.join();
}

void CpuStream::enqueue(const char* name, std::function<Result<void>()> work) {
  push(name, Kind::work, std::move(work));
}

void CpuStream::wait(const Event& event) {
  push("wait", Kind::work, [event] { return event.wait(kNoDeadline); });
}

Event CpuStream::record() {
  Event event;
  push("record", Kind::mark, [this, event]() mutable -> Result<void> {
    if (error_)
      event.fail(*error_);
    else
      event.signal();
    return {};
  });
  return event;
}

void CpuStream::recover() {
  push("recover", Kind::mark, [this]() -> Result<void> {
    error_.reset();
    return {};
  });
}

void CpuStream::finish(Result<void> outcome) {
  if (!outcome && !error_) error_ = outcome.error();
}

void CpuStream::delay() {
  constexpr std::uint64_t kMostYields = 32;
  const std::uint64_t yields = philox_u64(philox_key(*options_.delay_seed), executed_, 0) % kMostYields;
  for (std::uint64_t i = 0; i < yields; ++i) sched_yield();
}

void CpuStream::execute(Slot& slot) {
  if (options_.delay_seed) delay();
  ++executed_;
  if (slot.kind == Kind::mark || !error_) finish(slot.run(slot.storage));
  slot.destroy(slot.storage);
}

void CpuStream::loop() {
  name_thread("stream");
  prepare_compute_thread();
  t_running_stream = this;
  std::unique_lock lock(mutex_);
  for (;;) {
    idle_ = true;
    work_.wait(lock, [this] { return pushed_ != popped_ || stopping_; });
    idle_ = false;
    if (pushed_ == popped_) return;
    Slot& slot = slots_[popped_ % kSlots];
    lock.unlock();
    execute(slot);
    lock.lock();
    const bool was_full = pushed_ - popped_ == kSlots;
    ++popped_;
    if (was_full) room_.notify_all();
  }
}

void launch_copy(Stream& stream, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  static_cast<CpuStream&>(stream).launch("copy", [to, from, bytes](ThreadPool&) { std::memcpy(to, from, bytes); });
}

}  // namespace kintsugi::kernels::cpu
