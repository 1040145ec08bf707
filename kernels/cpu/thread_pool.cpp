#include "kernels/cpu/thread_pool.hpp"

#include <omp.h>

#include <algorithm>

#include "base/assert.hpp"
#include "base/thread_name.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kintsugi::kernels::cpu {

void prepare_compute_thread() {
#if defined(__x86_64__)
  constexpr unsigned kDenormalsAreZero = 1u << 6, kRoundingMode = 3u << 13, kFlushToZero = 1u << 15;
  _mm_setcsr((_mm_getcsr() & ~kRoundingMode) | kDenormalsAreZero | kFlushToZero);
#elif defined(__aarch64__)
  constexpr std::uint64_t kFlushToZero = 1u << 24, kRoundingMode = 3u << 22;
  std::uint64_t fpcr = 0;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  asm volatile("msr fpcr, %0" : : "r"((fpcr & ~kRoundingMode) | kFlushToZero));
#else
#error "say how this processor flushes denormals to zero"
#endif
  omp_set_num_threads(1);  // oneDNN is called by many threads, each alone
}

ThreadPool::ThreadPool(int threads) {
  KINTSUGI_ASSERT(threads >= 1);
  helpers_.reserve(static_cast<std::size_t>(threads - 1));
  for (int i = 1; i < threads; ++i)
    helpers_.emplace_back([this] {
      name_thread("compute");
      help();
    });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    KINTSUGI_ASSERT_MSG(job_.call == nullptr, "a thread pool was destroyed while it ran");
    stopping_ = true;
  }
  work_ready_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::take_pieces(const Job& job, std::int64_t pieces) {
  for (;;) {
    const std::int64_t piece = next_piece_.fetch_add(1, std::memory_order_relaxed);
    if (piece >= pieces) return;
    job.call(job.callable, piece);
  }
}

// A helper that wakes too late finds no job and sleeps again: the caller waits only for those that came.
void ThreadPool::run_job(std::int64_t pieces, Job job) {
  if (pieces <= 1 || helpers_.empty()) {
    for (std::int64_t piece = 0; piece < pieces; ++piece) job.call(job.callable, piece);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    KINTSUGI_ASSERT_MSG(job_.call == nullptr, "a thread pool has one caller at a time");
    job_ = job;
    pieces_ = pieces;
    ++job_number_;
    next_piece_.store(0, std::memory_order_relaxed);
  }
  const auto wanted = std::min<std::int64_t>(pieces - 1, static_cast<std::int64_t>(helpers_.size()));
  for (std::int64_t i = 0; i < wanted; ++i) work_ready_.notify_one();
  take_pieces(job, pieces);
  std::unique_lock lock(mutex_);
  job_ = {};
  all_left_.wait(lock, [this] { return inside_ == 0; });
}

void ThreadPool::help() {
  prepare_compute_thread();
  std::uint64_t last_job = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    work_ready_.wait(lock, [&] { return stopping_ || (job_.call != nullptr && job_number_ != last_job); });
    if (stopping_) return;
    last_job = job_number_;
    const Job job = job_;
    const std::int64_t pieces = pieces_;
    ++inside_;
    lock.unlock();
    take_pieces(job, pieces);
    lock.lock();
    if (--inside_ == 0) all_left_.notify_one();
  }
}

}  // namespace kintsugi::kernels::cpu
