// A job: model, data, optimizer, global batch, parallel shape (CLI.md shows the file). Everything that can show in the
// bits of a run is here, and `job_identity` names exactly that part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/digest.hpp"
#include "base/result.hpp"

namespace kintsugi {

enum class ModelFamily : std::uint8_t { gpt2, llama };
enum class TokenFormat : std::uint8_t { uint16, uint32, llmc };
enum class Precision : std::uint8_t { float32, bfloat16 };
enum class LearningRateDecay : std::uint8_t { none, linear, cosine };
enum class ScheduleKind : std::uint8_t { gpipe, one_f_one_b };

struct ModelConfig {
  ModelFamily family = ModelFamily::gpt2;
  std::int64_t layers = 0;  // transformer blocks
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // = heads for gpt2
  std::int64_t hidden = 0;    // of the feed-forward part; gpt2: 4 * width, llama: 8/3 * width, up to a multiple of 64
  std::int64_t context = 0;   // longest sequence, tokens
  std::int64_t vocabulary = 0;
  bool tied = true;  // output projection shares the token embedding
  float norm_epsilon = 1e-5f;
  float rope_theta = 10000.0f;  // llama
  std::uint64_t seed = 0;       // of the initialisation

  std::int64_t head_dim() const { return width / heads; }
  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  std::string train;  // path, relative to the job file's folder or the working directory (first that exists)
  TokenFormat tokens = TokenFormat::uint16;
  std::uint64_t seed = 0;  // of the order of samples
  bool operator==(const DataConfig&) const = default;
};

struct BatchConfig {
  std::int64_t sequences = 0;   // per step
  std::int64_t microbatch = 0;  // sequences of one forward/backward
  std::int64_t lanes = 0;
  std::int64_t length = 0;  // tokens a sequence; = context unless given

  std::int64_t sequences_per_lane() const { return sequences / lanes; }
  std::int64_t microbatches_per_lane() const { return sequences_per_lane() / microbatch; }
  std::int64_t tokens_per_step() const { return sequences * length; }
  bool operator==(const BatchConfig&) const = default;
};

struct OptimizerConfig {
  double learning_rate = 0;
  std::int64_t warmup_steps = 0;  // linear from learning_rate / warmup_steps
  LearningRateDecay decay = LearningRateDecay::none;
  std::int64_t decay_steps = 0;      // counted from step 1, warm-up included; = steps unless given; 0 without decay
  double minimum_learning_rate = 0;  // where the decay ends
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;  // on matrices; not on biases and norms
  double clip = 0;          // global gradient norm; 0: no clipping
  bool operator==(const OptimizerConfig&) const = default;
};

struct ParallelConfig {
  std::optional<std::int64_t> stages;  // empty: auto
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  bool operator==(const ParallelConfig&) const = default;
};

struct ResilienceConfig {
  std::int64_t replicas = 2;        // copies of every shard, the primary's included; fewer where there are fewer ranks
  std::int64_t orphan_limit = 600;  // seconds that training goes on without a supervisor
  bool operator==(const ResilienceConfig&) const = default;
};

struct JobConfig {
  std::string name;
  ModelConfig model;
  DataConfig data;
  BatchConfig batch;
  OptimizerConfig optimizer;
  ParallelConfig parallel;
  ResilienceConfig resilience;
  Precision precision = Precision::float32;
  std::int64_t steps = 0;
  bool operator==(const JobConfig&) const = default;
};

// Sizes are capped so that no product of them overflows 64 bits: a model's matrices, and the rows of a microbatch.
constexpr std::int64_t kMaxModelElements = std::int64_t{1} << 44;
constexpr std::int64_t kMaxMicrobatchTokens = std::int64_t{1} << 24;

// Parses and checks a whole job file. `source` names it in messages: "FILE:LINE: key: what, and what to do". Unknown
// keys, wrong types, duplicate keys and impossible shapes are refused; keys of features that do not exist yet are
// refused like any unknown one. Error{tell_user}.
Result<JobConfig> parse_job(const std::string& yaml_text, const std::string& source);
// Reads at most 1 MiB. Resolves data.train against the file's folder if it does not exist as given.
Result<JobConfig> load_job(const std::string& path);
// A job file again, every default written out; parse_job(to_yaml(c)) == c. What travels to ranks.
std::string to_yaml(const JobConfig& config);

// The rules of the model section, for a shape that comes from elsewhere. Error{tell_user}: "source: key: what".
Result<void> check_model(const ModelConfig& model, const std::string& source);

// Names what can show in the bits: model, data format and seed, batch, optimizer (learning-rate horizon included),
// precision. Not the job's name, paths, parallel shape, resilience or number of steps.
Digest job_identity(const JobConfig& config);

}  // namespace kintsugi
