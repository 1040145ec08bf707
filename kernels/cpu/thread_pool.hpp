// The compute threads of one stream. Work comes cut into pieces (functions of the shape alone); which thread takes which
// piece never shows in the result.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kintsugi::kernels::cpu {

class ThreadPool {
 public:
  // `threads` compute threads in all: the caller of run() and threads - 1 helpers, which block while idle.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }
  // Calls piece(0) .. piece(pieces - 1), each once, and returns when all have returned. One caller at a time.
  void run(std::int64_t pieces, const std::function<void(std::int64_t piece)>& piece);

 private:
  std::vector<std::thread> helpers_;
  // The rest is kernels/cpu/thread_pool.cpp's to declare.
};

// Flush-to-zero, denormals-are-zero, round-to-nearest, one OpenMP thread; every compute thread calls it first.
void prepare_compute_thread();

}  // namespace kintsugi::kernels::cpu
