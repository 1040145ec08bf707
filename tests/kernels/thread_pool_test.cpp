#include "kernels/cpu/thread_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

namespace kintsugi::kernels::cpu {
namespace {

TEST(ThreadPool, every_piece_runs_exactly_once) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t pieces : {0, 1, 2, 3, 64, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(pieces));
      pool.run(pieces, [&](std::int64_t piece) { ++runs[static_cast<std::size_t>(piece)]; });
      for (const auto& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, jobs_in_a_row_never_mix) {
  ThreadPool pool(3);
  for (std::int64_t job = 0; job < 5000; ++job) {
    std::atomic<std::int64_t> sum{0};
    pool.run(7, [&sum, job](std::int64_t piece) { sum += job * 7 + piece; });
    ASSERT_EQ(sum, 49 * job + 21);
  }
}

TEST(ThreadPool, every_compute_thread_flushes_denormals) {
  prepare_compute_thread();
  ThreadPool pool(3);
  std::atomic<int> kept{0};
  pool.run(64, [&](std::int64_t) {
    volatile float smallest_normal = std::numeric_limits<float>::min();
    volatile float half = smallest_normal * 0.5f;
    volatile float denormal = std::numeric_limits<float>::denorm_min();
    volatile float scaled = denormal * 0x1p100f;
    if (half != 0 || scaled != 0) ++kept;
  });
  EXPECT_EQ(kept, 0);
}

}  // namespace
}  // namespace kintsugi::kernels::cpu
