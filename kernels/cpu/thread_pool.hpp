// The compute threads of one stream. Work comes cut into pieces (functions of the shape alone); which thread takes
// which piece never shows in the result.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
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

  // Calls piece(0) .. piece(pieces - 1), each once, and returns when all have returned. One caller at a time; `piece`
  // is any callable of one std::int64_t and is not copied.
  template <class Piece>
  void run(std::int64_t pieces, const Piece& piece) {
    run_job(pieces, {&piece, [](const void* f, std::int64_t i) { (*static_cast<const Piece*>(f))(i); }});
  }

 private:
  struct Job {
    const void* callable = nullptr;
    void (*call)(const void* callable, std::int64_t piece) = nullptr;
  };

  void run_job(std::int64_t pieces, Job job);
  void help();
  void take_pieces(const Job& job, std::int64_t pieces);

  std::mutex mutex_;
  std::condition_variable work_ready_, all_left_;
  Job job_;                  // call == nullptr: nothing to do
  std::int64_t pieces_ = 0;  // of job_
  std::uint64_t job_number_ = 0;
  int inside_ = 0;  // helpers working on job_
  bool stopping_ = false;
  std::atomic<std::int64_t> next_piece_{0};
  std::vector<std::thread> helpers_;
};

// Flush-to-zero, denormals-are-zero, round-to-nearest, one OpenMP thread; every compute thread calls it first.
void prepare_compute_thread();

}  // namespace kintsugi::kernels::cpu
