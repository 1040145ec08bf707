// What the kernels outside the matrix products cost in one GPT-2 124M training step: attention, GELU, cross-entropy and
// embedding at 4 x 256 tokens, forward and backward, 12 layers; and SwiGLU and rotary at the same sizes. Prints JSON.
//   attention_bench [threads = 2] [repetitions = 9]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/philox.hpp"
#include "kernels/cpu/functions.hpp"

namespace {

using namespace kintsugi;
using namespace kintsugi::kernels;
using namespace kintsugi::kernels::cpu;

constexpr std::int64_t kLayers = 12, kSequences = 4, kLength = 256, kHeads = 12, kHeadDim = 64;
constexpr std::int64_t kRows = kSequences * kLength, kWidth = kHeads * kHeadDim, kHidden = 4 * kWidth;
constexpr std::int64_t kVocabulary = 50257;

struct Timing {
  std::string name;
  double median_ms;
  double fastest_ms;
  double cpu_ms;  // median over repetitions of the process's CPU time by threads: means something on a busy machine too
  double step_ms;  // cpu_ms times the calls of one step
};

class Bench {
 public:
  Bench(int threads, int repetitions) : pool(threads), repetitions_(repetitions) {}

  template <class Work>
  void measure(std::string name, std::int64_t calls_a_step, Work work) {
    const SteadyClock clock;
    std::vector<double> ms, cpu_ms;
    work();  // warm: pages, scratch, dispatch
    for (int i = 0; i < repetitions_; ++i) {
      const Instant start = clock.now();
      const std::clock_t cpu_start = std::clock();
      work();
      cpu_ms.push_back(static_cast<double>(std::clock() - cpu_start) * 1e3 / CLOCKS_PER_SEC / pool.threads());
      ms.push_back((clock.now() - start).seconds() * 1e3);
    }
    std::sort(ms.begin(), ms.end());
    std::sort(cpu_ms.begin(), cpu_ms.end());
    const double cpu_median = cpu_ms[ms.size() / 2];
    timings.push_back(
        {std::move(name), ms[ms.size() / 2], ms.front(), cpu_median, cpu_median * static_cast<double>(calls_a_step)});
  }

  ThreadPool pool;
  std::vector<Timing> timings;

 private:
  int repetitions_;
};

template <class T>
std::vector<T> random_values(ThreadPool& pool, std::int64_t count, float scale) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * static_cast<float>(2.0 * unit_interval(philox_u64(philox_key(7), i, 0)) - 1.0);
  }
  std::vector<T> out(values.size());
  if constexpr (std::is_same_v<T, float>) {
    out = values;
  } else {
    convert(pool, out.data(), values.data(), count);
  }
  return out;
}

template <class T>
void run_attention(Bench& bench, const std::string& dtype) {
  ThreadPool& pool = bench.pool;
  const auto qkv = random_values<T>(pool, kRows * 3 * kWidth, 1.0f);
  const auto grad_out = random_values<T>(pool, kRows * kWidth, 1.0f);
  std::vector<T> out(grad_out.size()), grad(qkv.size());
  std::vector<float> log_sum_exp(static_cast<std::size_t>(kSequences * kHeads * kLength));
  const AttentionShape shape{kSequences, kLength, kHeads, kHeads, kHeadDim, 3 * kWidth, 3 * kWidth, kWidth};
  const T* q = qkv.data();
  bench.measure("attention_forward_" + dtype, kLayers,
                [&] { attention_forward(pool, out.data(), log_sum_exp.data(), q, q + kWidth, q + 2 * kWidth, shape); });
  bench.measure("attention_backward_" + dtype, kLayers, [&] {
    attention_backward(pool, grad.data(), grad.data() + kWidth, grad.data() + 2 * kWidth, grad_out.data(), out.data(),
                       log_sum_exp.data(), q, q + kWidth, q + 2 * kWidth, shape);
  });
  auto rotated = qkv;
  bench.measure("rotary_" + dtype, 0, [&] {
    rotary(pool, rotated.data(), 3 * kWidth, kRows, 2 * kHeads, kHeadDim, kLength, 10000.0f, false);
  });
}

template <class T>
void run_activations(Bench& bench, const std::string& dtype) {
  ThreadPool& pool = bench.pool;
  const auto in = random_values<T>(pool, kRows * 2 * kHidden, 3.0f);
  const auto grad_out = random_values<T>(pool, kRows * kHidden, 1.0f);
  std::vector<T> out(grad_out.size()), grad_in(in.size());
  const std::int64_t count = kRows * kHidden;
  bench.measure("gelu_forward_" + dtype, kLayers, [&] { gelu_forward(pool, out.data(), in.data(), count); });
  bench.measure("gelu_backward_" + dtype, kLayers,
                [&] { gelu_backward(pool, grad_in.data(), grad_out.data(), in.data(), count); });
  bench.measure("swiglu_forward_" + dtype, 0, [&] { swiglu_forward(pool, out.data(), in.data(), kRows, kHidden); });
  bench.measure("swiglu_backward_" + dtype, 0,
                [&] { swiglu_backward(pool, grad_in.data(), grad_out.data(), in.data(), kRows, kHidden); });
}

template <class T>
void run_ends(Bench& bench, const std::string& dtype) {
  ThreadPool& pool = bench.pool;
  auto logits = random_values<T>(pool, kRows * kVocabulary, 5.0f);
  std::vector<float> losses(static_cast<std::size_t>(kRows));
  std::vector<std::int32_t> tokens(losses.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(philox_u64(philox_key(9), i, 0) % kVocabulary);
  }
  bench.measure("cross_entropy_" + dtype, 1, [&] {
    cross_entropy(pool, losses.data(), logits.data(), tokens.data(), kRows, kVocabulary, 1.0f / kRows);
  });
  const auto table = random_values<T>(pool, kVocabulary * kWidth, 1.0f);
  std::vector<T> rows(static_cast<std::size_t>(kRows * kWidth));
  std::vector<float> grad_table(table.size()), grad_positions(static_cast<std::size_t>(1024 * kWidth));
  bench.measure("embedding_forward_" + dtype, 1, [&] {
    embedding_forward(pool, rows.data(), tokens.data(), table.data(), table.data(), kRows, kVocabulary, kWidth,
                      kLength);
  });
  bench.measure("embedding_backward_" + dtype, 1, [&] {
    embedding_backward(pool, grad_table.data(), grad_positions.data(), rows.data(), tokens.data(), kRows, kVocabulary,
                       kWidth, kLength, 1024, false);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int repetitions = argc > 2 ? std::atoi(argv[2]) : 9;
  prepare_compute_thread();
  Bench bench(threads, std::max(1, repetitions));
  run_attention<float>(bench, "float32");
  run_attention<bf16>(bench, "bfloat16");
  run_activations<float>(bench, "float32");
  run_activations<bf16>(bench, "bfloat16");
  run_ends<float>(bench, "float32");
  run_ends<bf16>(bench, "bfloat16");
  double float32_ms = 0, bfloat16_ms = 0;
  std::printf("{\"shape\": \"GPT-2 124M, 4 x 256\", \"threads\": %d, \"kernels\": [\n", threads);
  for (const Timing& t : bench.timings) {
    (t.name.ends_with("bfloat16") ? bfloat16_ms : float32_ms) += t.step_ms;
    std::printf(
        "  {\"name\": \"%s\", \"median_ms\": %.3f, \"fastest_ms\": %.3f, \"cpu_ms\": %.3f, \"step_ms\": %.1f},\n",
        t.name.c_str(), t.median_ms, t.fastest_ms, t.cpu_ms, t.step_ms);
  }
  std::printf("  {\"name\": \"step\", \"float32_ms\": %.1f, \"bfloat16_ms\": %.1f}]}\n", float32_ms, bfloat16_ms);
  return 0;
}
