// A whole training step in one process: forward, backward, gradient norm and AdamW of a preset. Prints JSON: the step's
// time, tokens/s, model FLOPs utilisation against the multiply-add peak of its dtype measured in the same run, and
// where the time goes.
//   model_bench [--preset gpt2-124m] [--precision float32|bfloat16] [--sequences 4] [--length 256] [--threads 2]
//               [--steps 5]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/philox.hpp"
#include "bench/timed_device.hpp"
#include "engine/model/presets.hpp"
#include "kernels/cpu/cpu_device.hpp"
#include "kernels/cpu/peak.hpp"
#include "tests/engine/model/whole_model.hpp"

namespace {

using namespace kintsugi;
using test::Microbatch;
using test::WholeModel;

// CPU time of all threads of this process: what a step costs even where cores are shared. Nothing of ours spins.
class ProcessCpuClock final : public Clock {
 public:
  Instant now() const override {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);  // lint-allow(clock): this is the clock that comes in
    return {t.tv_sec * 1'000'000'000 + t.tv_nsec};
  }
};

struct Arguments {
  std::string preset = "gpt2-124m";
  std::string precision = "float32";
  MicrobatchShape shape{4, 256};
  int threads = 2;
  int steps = 5;
};

Microbatch random_tokens(const ModelConfig& config, MicrobatchShape shape) {
  Microbatch batch;
  for (std::int64_t i = 0; i <= shape.rows(); ++i) {
    const std::uint64_t bits = philox_u64(philox_key(1), static_cast<std::uint64_t>(i), 0);
    const auto token = static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(config.vocabulary));
    if (i < shape.rows()) batch.tokens.push_back(token);
    if (i > 0) batch.targets.push_back(token);
  }
  return batch;
}

// Small weights of any kind: only the time matters.
float small_weight(const Parameter& parameter, std::int64_t i) {
  if (!parameter.is_matrix) return parameter.initialisation == Initialisation::ones ? 1.0f : 0.0f;
  return static_cast<float>((i * 2654435761) % 1024 - 512) * 0x1p-14f;
}

void step(WholeModel& model, const Microbatch& batch) {
  model.run_lane(0, std::span(&batch, 1), 1.0f / static_cast<float>(batch.tokens.size()));
  model.reduce();
  model.squared_gradient_norm();
  model.update({.learning_rate = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f});
}

std::vector<double> step_ms(WholeModel& model, const Microbatch& batch, const Clock& clock, int steps) {
  std::vector<double> times;
  for (int i = -1; i < steps; ++i) {
    const Instant began = clock.now();
    step(model, batch);
    if (i >= 0) times.push_back((clock.now() - began).seconds() * 1e3);  // the first touches memory
  }
  std::ranges::sort(times);
  return times;
}

// One more step with a clock around every operation, in ms of CPU time of all threads, the longest first.
nlohmann::ordered_json breakdown(bench::TimedDevice& device, WholeModel& model, const Microbatch& batch) {
  device.ops().times().clear();
  step(model, batch);
  std::vector<std::pair<std::string, bench::OperationTime>> times(device.ops().times().begin(),
                                                                  device.ops().times().end());
  std::ranges::sort(times, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  nlohmann::ordered_json json;
  for (const auto& [name, time] : times) {
    json[name] = {{"cpu_ms", std::round(time.seconds * 1e5) / 100}, {"calls", time.calls}};
  }
  return json;
}

int run(const Arguments& a) {
  const std::optional<ModelConfig> config = find_preset(a.preset);
  if (!config) {
    std::fprintf(stderr, "model_bench: no preset is called %s\n", a.preset.c_str());
    return 2;
  }
  const bool float32 = a.precision == "float32";
  const Precision precision = float32 ? Precision::float32 : Precision::bfloat16;
  const SteadyClock clock;
  const double peak = float32 ? kernels::cpu::measure_fma_peak(a.threads) : kernels::cpu::measure_bf16_peak(a.threads);
  const auto cpu = kernels::cpu::make_cpu_device(a.threads);
  const ProcessCpuClock cpu_clock;
  bench::TimedDevice device(*cpu, cpu_clock);
  WholeModel timed(device, *config, {precision, a.shape, 1});
  timed.set_weights(small_weight);
  const Microbatch batch = random_tokens(*config, a.shape);
  const std::vector<double> times = step_ms(timed, batch, clock, a.steps);
  const double median = times[times.size() / 2];
  const Instant cpu_before = cpu_clock.now();
  step(timed, batch);
  const double cpu_seconds = (cpu_clock.now() - cpu_before).seconds();
  nlohmann::ordered_json json{
      {"benchmark", "model_step"},
      {"preset", a.preset},
      {"precision", a.precision},
      {"sequences", a.shape.sequences},
      {"length", a.shape.length},
      {"threads", a.threads},
      {"kernel_variant", cpu->traits().kernel_variant},
      {"step_ms", {{"median", median}, {"fastest", times.front()}, {"slowest", times.back()}}},
      {"tokens_per_second", static_cast<double>(a.shape.rows()) / median * 1e3},
      {"model_gflop", timed.flops_per_microbatch() * 1e-9},
      {"device_bytes", timed.bytes()},
      {"peak_gflops", peak * 1e-9},
      {"utilisation", timed.flops_per_microbatch() / (median * 1e-3) / peak},
      {"step_cpu_ms", cpu_seconds * 1e3},
      {"utilisation_of_cpu_time", timed.flops_per_microbatch() / cpu_seconds / (peak / a.threads)},
      {"operations", breakdown(device, timed, batch)}};
  std::printf("%s\n", json.dump(2).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  CLI::App app("A whole training step in one process, as JSON.");
  app.add_option("--preset", a.preset);
  app.add_option("--precision", a.precision)->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--sequences", a.shape.sequences);
  app.add_option("--length", a.shape.length);
  app.add_option("--threads", a.threads);
  app.add_option("--steps", a.steps)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  return run(a);
}
