#include "engine/model/job_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>

#include "base/file.hpp"
#include "engine/model/config_reader.hpp"
#include "engine/model/presets.hpp"

namespace kintsugi {

namespace {

constexpr NamedValue<ModelFamily> kFamilies[] = {{"gpt2", ModelFamily::gpt2}, {"llama", ModelFamily::llama}};
constexpr NamedValue<TokenFormat> kTokenFormats[] = {
    {"uint16", TokenFormat::uint16}, {"uint32", TokenFormat::uint32}, {"llmc", TokenFormat::llmc}};
constexpr NamedValue<Precision> kPrecisions[] = {{"float32", Precision::float32}, {"bfloat16", Precision::bfloat16}};
constexpr NamedValue<LearningRateDecay> kDecays[] = {
    {"none", LearningRateDecay::none}, {"linear", LearningRateDecay::linear}, {"cosine", LearningRateDecay::cosine}};
constexpr NamedValue<ScheduleKind> kSchedules[] = {{"1f1b", ScheduleKind::one_f_one_b}, {"gpipe", ScheduleKind::gpipe}};

constexpr NamedValue<bool> kOptimizers[] = {{"adamw", true}};

// Bounds of single sizes; products are bounded in check_* below.
constexpr Range<std::int64_t> kLayers{1, 4096}, kWidth{1, 1 << 17}, kHeads{1, 4096}, kHidden{1, 1 << 20};
constexpr Range<std::int64_t> kContext{1, 1 << 20}, kVocabulary{2, 1 << 24}, kSequences{1, 1 << 24}, kLanes{1, 1 << 16};
constexpr Range<std::int64_t> kSteps{1, std::int64_t{1} << 40};

template <class T, std::size_t N>
std::string_view name_of(const NamedValue<T> (&names)[N], T value) {
  return std::ranges::find(names, value, &NamedValue<T>::value)->name;
}

std::int64_t matrix_elements(const ModelConfig& m) {
  const std::int64_t attention = 2 * m.width * m.width + 2 * m.width * m.kv_heads * m.head_dim();
  const std::int64_t feed_forward = (m.family == ModelFamily::llama ? 3 : 2) * m.width * m.hidden;
  const std::int64_t tables = (m.tied ? 1 : 2) * m.vocabulary * m.width + m.context * m.width;
  return m.layers * (attention + feed_forward) + tables;
}

struct Problem {
  std::string_view key;
  std::string what;
};

// The first thing wrong with a shape, whose single sizes are within their ranges.
std::optional<Problem> find_problem(const ModelConfig& m) {
  if (m.width % m.heads != 0) {
    return Problem{"heads",
                   fmt::format("{} heads do not divide width {}; choose a divisor of the width", m.heads, m.width)};
  }
  if (m.heads % m.kv_heads != 0) {
    return Problem{"kv_heads",
                   fmt::format("{} does not divide heads {}; choose a divisor of the heads", m.kv_heads, m.heads)};
  }
  if (m.family == ModelFamily::llama && m.head_dim() % 2 != 0) {
    return Problem{"heads",
                   fmt::format("width / heads is {}, and rotary positions need an even number; change width or heads",
                               m.head_dim())};
  }
  if (const std::int64_t weights = matrix_elements(m); weights > kMaxModelElements) {
    return Problem{"layers", fmt::format("the model has {} weights, and at most {} are possible; make it smaller",
                                         weights, kMaxModelElements)};
  }
  return {};
}

ModelConfig read_shape(ConfigMap& map) {
  const bool has_preset = map.has("preset");
  ModelConfig base;
  if (has_preset) {
    const std::string name = map.text("preset");
    if (const auto found = find_preset(name))
      base = *found;
    else
      map.refuse("preset", fmt::format("'{}' is not known; write one of: {}", name, fmt::join(preset_names(), ", ")));
    map.check(!map.has("family"), "family", "comes from the preset; remove it, or the preset");
  } else {
    base.family = map.one_of("family", kFamilies);
    base.tied = base.family == ModelFamily::gpt2;
  }
  const bool llama = base.family == ModelFamily::llama;
  // A preset's value stands in for a key that is not there; without a preset the key is required.
  const auto preset = [&](std::int64_t value) { return has_preset ? std::optional(value) : std::nullopt; };
  ModelConfig m = base;
  m.layers = map.integer("layers", kLayers, preset(base.layers));
  m.width = map.integer("width", kWidth, preset(base.width));
  m.heads = map.integer("heads", kHeads, preset(base.heads));
  m.context = map.integer("context", kContext, preset(base.context));
  m.vocabulary = map.integer("vocabulary", kVocabulary, preset(base.vocabulary));
  const std::int64_t hidden = llama ? default_llama_hidden(m.width) : 4 * m.width;
  m.hidden = map.integer("hidden", kHidden, m.width == base.width ? base.hidden : hidden);
  map.check(llama || !map.has("kv_heads"), "kv_heads", "gpt2 has no grouped queries; remove it");
  m.kv_heads = map.integer("kv_heads", kHeads, llama && m.heads == base.heads ? base.kv_heads : m.heads);
  m.tied = map.boolean("tied", base.tied);
  m.norm_epsilon = map.single("norm_epsilon", {0.0f, 1.0f, true}, base.norm_epsilon);
  map.check(llama || !map.has("rope_theta"), "rope_theta", "gpt2 has no rotary positions; remove it");
  m.rope_theta = map.single("rope_theta", {1.0f, 1e12f}, base.rope_theta);
  return m;
}

ModelConfig read_model(const YamlNode& node, std::uint64_t data_seed, ConfigErrors& errors) {
  if (node.kind == YamlNode::Kind::scalar) {
    const auto preset = find_preset(node.scalar);
    if (!preset) {
      errors.add(node.line, "model",
                 fmt::format("'{}' is not known; write a map, or one of: {}", node.scalar.substr(0, 60),
                             fmt::join(preset_names(), ", ")));
      return {};
    }
    ModelConfig m = *preset;
    m.seed = data_seed;
    return m;
  }
  ConfigMap map(node, "model",
                {"preset", "family", "layers", "width", "heads", "kv_heads", "hidden", "context", "vocabulary", "tied",
                 "norm_epsilon", "rope_theta", "seed"},
                errors);
  ModelConfig m = read_shape(map);
  m.seed = map.seed("seed", data_seed);
  if (map.failed()) return m;
  if (const auto problem = find_problem(m)) map.refuse(problem->key, problem->what);
  return m;
}

DataConfig read_data(const YamlNode& node, ConfigErrors& errors) {
  ConfigMap map(node, "data", {"train", "tokens", "seed"}, errors);
  DataConfig data;
  data.train = map.text("train");
  map.check(std::ranges::none_of(data.train, [](char c) { return static_cast<unsigned char>(c) < 0x20; }), "train",
            "holds a control character; name a file");
  data.tokens = map.one_of("tokens", kTokenFormats, TokenFormat::uint16);
  data.seed = map.seed("seed", 0);
  return data;
}

BatchConfig read_batch(const YamlNode& node, const ModelConfig& model, ConfigErrors& errors) {
  ConfigMap map(node, "batch", {"sequences", "microbatch", "lanes", "length"}, errors);
  BatchConfig b;
  b.sequences = map.integer("sequences", kSequences);
  b.lanes = map.integer("lanes", kLanes);
  b.microbatch = map.integer("microbatch", kSequences);
  b.length = map.integer("length", kContext, std::max<std::int64_t>(model.context, 1));
  if (map.failed()) return b;
  map.check(b.length <= model.context, "length",
            fmt::format("{} tokens do not fit into the model's context {}; shorten it", b.length, model.context));
  map.check(b.sequences % b.lanes == 0, "lanes",
            fmt::format("{} lanes do not divide {} sequences; choose a divisor", b.lanes, b.sequences));
  map.check(b.sequences_per_lane() % b.microbatch == 0, "microbatch",
            fmt::format("{} does not divide the {} sequences of a lane (sequences / lanes); choose a divisor",
                        b.microbatch, b.sequences_per_lane()));
  map.check(b.microbatch * b.length <= kMaxMicrobatchTokens, "microbatch",
            fmt::format("{} tokens a microbatch, and at most {} are possible; make it smaller", b.microbatch * b.length,
                        kMaxMicrobatchTokens));
  return b;
}

OptimizerConfig read_optimizer(const YamlNode& node, std::int64_t steps, ConfigErrors& errors) {
  ConfigMap map(node, "optimizer",
                {"name", "learning_rate", "warmup_steps", "decay", "decay_steps", "minimum_learning_rate", "beta1",
                 "beta2", "epsilon", "weight_decay", "clip"},
                errors);
  const OptimizerConfig standard;
  OptimizerConfig o;
  map.one_of("name", kOptimizers, true);
  o.learning_rate = map.number("learning_rate", {0.0, 10.0, true});
  o.warmup_steps = map.integer("warmup_steps", {0, kSteps.high}, 0);
  o.decay = map.one_of("decay", kDecays, LearningRateDecay::none);
  if (o.decay == LearningRateDecay::none) {
    for (const char* const key : {"decay_steps", "minimum_learning_rate"}) {
      map.check(!map.has(key), key, "does nothing without a decay; remove it, or add decay: linear or cosine");
    }
  } else {
    o.decay_steps = map.integer("decay_steps", kSteps, std::max<std::int64_t>(steps, 1));
    o.minimum_learning_rate = map.number("minimum_learning_rate", {0.0, 10.0}, 0.0);
    map.check(o.decay_steps > o.warmup_steps, map.has("decay_steps") ? "decay_steps" : "warmup_steps",
              fmt::format("the decay ends at step {}, within the {} steps of warm-up; decay for longer", o.decay_steps,
                          o.warmup_steps));
    map.check(o.minimum_learning_rate <= o.learning_rate, "minimum_learning_rate",
              fmt::format("{} is above learning_rate {}; make it smaller", o.minimum_learning_rate, o.learning_rate));
  }
  // Below 1 by more than float32 can lose: 1 - beta is a divisor's ancestor.
  o.beta1 = map.number("beta1", {0.0, 0.999999}, standard.beta1);
  o.beta2 = map.number("beta2", {0.0, 0.999999}, standard.beta2);
  o.epsilon = map.number("epsilon", {1e-30, 1.0}, standard.epsilon);
  o.weight_decay = map.number("weight_decay", {0.0, 10.0}, standard.weight_decay);
  o.clip = map.number("clip", {0.0, 1e6}, standard.clip);
  return o;
}

ParallelConfig read_parallel(const YamlNode& node, const ModelConfig& model, ConfigErrors& errors) {
  ConfigMap map(node, "parallel", {"stages", "schedule"}, errors);
  ParallelConfig p;
  if (const YamlEntry* stages = node.find("stages"); stages != nullptr && stages->value.scalar != "auto") {
    p.stages = map.integer("stages", {1, kLayers.high});
    map.check(*p.stages <= std::max<std::int64_t>(model.layers, 1), "stages",
              fmt::format("{} stages for {} layers; a stage needs a layer, so write at most {}", *p.stages,
                          model.layers, model.layers));
  }
  p.schedule = map.one_of("schedule", kSchedules, ScheduleKind::one_f_one_b);
  return p;
}

ResilienceConfig read_resilience(const YamlNode& node, ConfigErrors& errors) {
  ConfigMap map(node, "resilience", {"replicas", "orphan_limit"}, errors);
  const ResilienceConfig standard;
  constexpr std::int64_t kWeek = 7 * 24 * 3600;
  return {map.integer("replicas", {1, 8}, standard.replicas),
          map.integer("orphan_limit", {1, kWeek}, standard.orphan_limit)};
}

std::string read_name(ConfigMap& file) {
  std::string name = file.text("job");
  const bool plain = std::ranges::all_of(
      name, [](unsigned char c) { return c < 0x80 && (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'); });
  file.check(plain && name.size() <= 64 && !name.starts_with('.'), "job",
             "a name has at most 64 letters, digits, '-', '_' and '.', and no '.' in front; rename it");
  return name;
}

}  // namespace

Result<JobConfig> parse_job(const std::string& yaml_text, const std::string& source) {
  KINTSUGI_TRY_ASSIGN(const YamlNode root, parse_yaml(yaml_text, source));
  if (root.kind == YamlNode::Kind::null) {
    return yaml_error(source, root.line, "the file is empty; write a job, e.g. examples/tiny.yaml");
  }
  ConfigErrors errors(source);
  ConfigMap file(
      root, "", {"job", "model", "data", "batch", "optimizer", "parallel", "resilience", "precision", "steps"}, errors);
  JobConfig c;
  c.name = read_name(file);
  c.steps = file.integer("steps", kSteps);
  c.precision = file.one_of("precision", kPrecisions, Precision::float32);
  c.data = read_data(file.child("data"), errors);
  c.model = read_model(file.child("model"), c.data.seed, errors);
  if (c.data.tokens == TokenFormat::uint16 && !errors.any() && c.model.vocabulary > 65536) {
    file.refuse("data",
                fmt::format("uint16 tokens cannot reach a vocabulary of {}; use tokens: uint32", c.model.vocabulary));
  }
  c.batch = read_batch(file.child("batch"), c.model, errors);
  c.optimizer = read_optimizer(file.child("optimizer"), c.steps, errors);
  if (file.has("parallel")) c.parallel = read_parallel(file.child("parallel"), c.model, errors);
  if (file.has("resilience")) c.resilience = read_resilience(file.child("resilience"), errors);
  if (errors.any()) return errors.first();
  return c;
}

Result<void> check_model(const ModelConfig& m, const std::string& source) {
  const auto refuse = [&](std::string_view key, const std::string& what) {
    return Error{ErrorAction::tell_user, fmt::format("{}: {}: {}", source, key, what)};
  };
  const std::tuple<std::string_view, std::int64_t, Range<std::int64_t>> sizes[] = {
      {"layers", m.layers, kLayers},
      {"width", m.width, kWidth},
      {"heads", m.heads, kHeads},
      {"kv_heads", m.kv_heads, kHeads},
      {"hidden", m.hidden, kHidden},
      {"context", m.context, kContext},
      {"vocabulary", m.vocabulary, kVocabulary}};
  for (const auto& [key, value, range] : sizes) {
    if (value < range.low || value > range.high) {
      return refuse(key, fmt::format("{} is out of range; at least {} and at most {} are possible", value, range.low,
                                     range.high));
    }
  }
  if (!(m.norm_epsilon > 0.0f && m.norm_epsilon <= 1.0f)) return refuse("norm_epsilon", "must lie in (0, 1]");
  if (!(m.rope_theta >= 1.0f && m.rope_theta <= 1e12f)) return refuse("rope_theta", "must lie in [1, 1e12]");
  if (const auto problem = find_problem(m)) return refuse(problem->key, problem->what);
  return {};
}

Result<JobConfig> load_job(const std::string& path) {
  KINTSUGI_TRY_ASSIGN(const std::string text, read_text_file(path, kMaxYamlBytes));
  KINTSUGI_TRY_ASSIGN(JobConfig config, parse_job(text, path));
  const std::filesystem::path beside = std::filesystem::path(path).parent_path() / config.data.train;
  std::error_code ignored;
  if (!std::filesystem::exists(config.data.train, ignored) && std::filesystem::exists(beside, ignored)) {
    config.data.train = beside.string();
  }
  return config;
}

std::string to_yaml(const JobConfig& c) {
  const ModelConfig& m = c.model;
  std::string out = fmt::format("job: {}\n", yaml_quoted(c.name));
  out += fmt::format(
      "model:\n  family: {}\n  layers: {}\n  width: {}\n  heads: {}\n  hidden: {}\n  context: {}\n"
      "  vocabulary: {}\n  tied: {}\n  norm_epsilon: {}\n  seed: {}\n",
      name_of(kFamilies, m.family), m.layers, m.width, m.heads, m.hidden, m.context, m.vocabulary, m.tied,
      m.norm_epsilon, m.seed);
  if (m.family == ModelFamily::llama) {
    out += fmt::format("  kv_heads: {}\n  rope_theta: {}\n", m.kv_heads, m.rope_theta);
  }
  out += fmt::format("data:\n  train: {}\n  tokens: {}\n  seed: {}\n", yaml_quoted(c.data.train),
                     name_of(kTokenFormats, c.data.tokens), c.data.seed);
  out += fmt::format("batch:\n  sequences: {}\n  microbatch: {}\n  lanes: {}\n  length: {}\n", c.batch.sequences,
                     c.batch.microbatch, c.batch.lanes, c.batch.length);
  const OptimizerConfig& o = c.optimizer;
  out += fmt::format("optimizer:\n  name: adamw\n  learning_rate: {}\n  warmup_steps: {}\n  decay: {}\n",
                     o.learning_rate, o.warmup_steps, name_of(kDecays, o.decay));
  if (o.decay != LearningRateDecay::none) {
    out += fmt::format("  decay_steps: {}\n  minimum_learning_rate: {}\n", o.decay_steps, o.minimum_learning_rate);
  }
  out += fmt::format("  beta1: {}\n  beta2: {}\n  epsilon: {}\n  weight_decay: {}\n  clip: {}\n", o.beta1, o.beta2,
                     o.epsilon, o.weight_decay, o.clip);
  out += fmt::format("parallel:\n  stages: {}\n  schedule: {}\n",
                     c.parallel.stages ? std::to_string(*c.parallel.stages) : "auto",
                     name_of(kSchedules, c.parallel.schedule));
  out += fmt::format("resilience:\n  replicas: {}\n  orphan_limit: {}\n", c.resilience.replicas,
                     c.resilience.orphan_limit);
  out += fmt::format("precision: {}\nsteps: {}\n", name_of(kPrecisions, c.precision), c.steps);
  return out;
}

Digest job_identity(const JobConfig& c) {
  Hasher hasher;
  hasher.update_string("kintsugi job identity 1");
  const auto integers = [&](std::initializer_list<std::int64_t> values) {
    for (const std::int64_t value : values) hasher.update_u64(static_cast<std::uint64_t>(value));
  };
  const auto numbers = [&](std::initializer_list<double> values) {
    for (const double value : values) hasher.update_u64(std::bit_cast<std::uint64_t>(value));
  };
  const ModelConfig& m = c.model;
  integers({static_cast<std::int64_t>(m.family), m.layers, m.width, m.heads, m.kv_heads, m.hidden, m.context,
            m.vocabulary, m.tied ? 1 : 0});
  numbers({m.norm_epsilon, m.rope_theta});
  hasher.update_u64(m.seed);
  integers({static_cast<std::int64_t>(c.data.tokens)});
  hasher.update_u64(c.data.seed);
  integers({c.batch.sequences, c.batch.microbatch, c.batch.lanes, c.batch.length});
  const OptimizerConfig& o = c.optimizer;
  integers({o.warmup_steps, static_cast<std::int64_t>(o.decay), o.decay_steps});
  numbers({o.learning_rate, o.minimum_learning_rate, o.beta1, o.beta2, o.epsilon, o.weight_decay, o.clip});
  integers({static_cast<std::int64_t>(c.precision)});
  return hasher.finish();
}

}  // namespace kintsugi
