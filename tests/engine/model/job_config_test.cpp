#include "engine/model/job_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/model/presets.hpp"

namespace kintsugi {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::string kJob = R"(job: tiny
model:
  family: llama
  layers: 4
  width: 256
  heads: 4
  kv_heads: 2
  context: 128
  vocabulary: 256
data:
  train: train.bin
  tokens: uint16
  seed: 7
batch:
  sequences: 32
  microbatch: 2
  lanes: 8
optimizer:
  learning_rate: 6e-4
  warmup_steps: 20
  clip: 1.0
parallel:
  stages: 2
precision: float32
steps: 200
)";

// The job with the first `from` replaced by `to`.
std::string with(const std::string& from, const std::string& to, std::string text = kJob) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

JobConfig parsed(const std::string& text) {
  Result<JobConfig> job = parse_job(text, "job.yaml");
  EXPECT_TRUE(job.ok()) << (job ? "" : job.error().message);
  return job ? *job : JobConfig{};
}

std::string refusal(const std::string& text) {
  const Result<JobConfig> job = parse_job(text, "job.yaml");
  EXPECT_FALSE(job.ok()) << text;
  if (job) return "";
  EXPECT_EQ(job.error().action, ErrorAction::tell_user);
  return job.error().message;
}

TEST(JobConfig, reads_every_key) {
  const JobConfig c = parsed(R"(
job: full
model: { family: llama, layers: 2, width: 96, heads: 4, kv_heads: 2, hidden: 200, context: 64, vocabulary: 300,
         tied: true, norm_epsilon: 1e-6, rope_theta: 5e5, seed: 18446744073709551615 }
data: { train: "a b.bin", tokens: uint32, seed: 3 }
batch: { sequences: 12, microbatch: 3, lanes: 2, length: 32 }
optimizer: { name: adamw, learning_rate: 0.001, warmup_steps: 5, decay: cosine, decay_steps: 90,
             minimum_learning_rate: 1e-5, beta1: 0.8, beta2: 0.99, epsilon: 1e-9, weight_decay: 0.2, clip: 0.5 }
parallel: { stages: auto, schedule: gpipe }
precision: bfloat16
steps: 100
)");
  JobConfig expected;
  expected.name = "full";
  expected.model = {ModelFamily::llama, 2, 96, 4, 2, 200, 64, 300, true, 1e-6f, 5e5f, UINT64_MAX};
  expected.data = {"a b.bin", TokenFormat::uint32, 3};
  expected.batch = {12, 3, 2, 32};
  expected.optimizer = {0.001, 5, LearningRateDecay::cosine, 90, 1e-5, 0.8, 0.99, 1e-9, 0.2, 0.5};
  expected.parallel = {std::nullopt, ScheduleKind::gpipe};
  expected.precision = Precision::bfloat16;
  expected.steps = 100;
  EXPECT_EQ(c, expected);
}

TEST(JobConfig, what_is_left_out_has_its_stated_default) {
  const JobConfig c = parsed(kJob);
  EXPECT_EQ(c.model.hidden, 704);  // 8/3 * 256 = 682.7, up to a multiple of 64
  EXPECT_FALSE(c.model.tied);
  EXPECT_EQ(c.model.seed, 7u);
  EXPECT_EQ(c.batch.length, 128);
  EXPECT_EQ(c.optimizer.beta2, 0.95);
  EXPECT_EQ(c.parallel.schedule, ScheduleKind::one_f_one_b);
  EXPECT_EQ(c.optimizer.decay, LearningRateDecay::none);
  const JobConfig gpt2 = parsed(with("  kv_heads: 2\n", "", with("llama", "gpt2")));
  EXPECT_EQ(gpt2.model.hidden, 1024);
  EXPECT_EQ(gpt2.model.kv_heads, 4);
  EXPECT_TRUE(gpt2.model.tied);
  EXPECT_EQ(parsed(with("clip: 1.0", "decay: linear")).optimizer.decay_steps, 200);
  EXPECT_FALSE(parsed(with("parallel:\n  stages: 2\n", "")).parallel.stages.has_value());
}

TEST(JobConfig, a_preset_is_a_model_and_its_keys_can_be_overridden) {
  const std::string head =
      "job: a\ndata: { train: t, tokens: uint32, seed: 5 }\nbatch: { sequences: 8, microbatch: 1, "
      "lanes: 8 }\noptimizer: { learning_rate: 1e-3 }\nsteps: 1\nmodel: ";
  for (const std::string_view name : preset_names()) {
    ModelConfig expected = *find_preset(name);
    expected.seed = 5;
    EXPECT_EQ(parsed(head + std::string(name)).model, expected);
    EXPECT_EQ(parsed(head + "{ preset: " + std::string(name) + " }").model, expected);
  }
  const ModelConfig m = parsed(head + "{ preset: llama-3-8b, layers: 2, width: 512, heads: 8, seed: 1 }").model;
  EXPECT_EQ(m.layers, 2);
  EXPECT_EQ(m.hidden, default_llama_hidden(512));
  EXPECT_EQ(m.kv_heads, 8);
  EXPECT_EQ(m.rope_theta, 5e5f);
  EXPECT_EQ(refusal(head + "gpt3"),
            "job.yaml:6: model: 'gpt3' is not known; write a map, or one of: gpt2-124m, gpt2-355m, gpt2-774m, "
            "gpt2-1558m, llama-7b, llama-13b, llama-2-7b, llama-2-13b, llama-2-70b, llama-3-8b, llama-3-70b, "
            "llama-3-405b, llama-3.2-1b, llama-3.2-3b");
  EXPECT_THAT(refusal(head + "{ preset: gpt3 }"), StartsWith("job.yaml:6: model.preset: 'gpt3' is not known"));
  EXPECT_EQ(refusal(head + "{ preset: gpt2-124m, family: gpt2 }"),
            "job.yaml:6: model.family: comes from the preset; remove it, or the preset");
}

struct Refusal {
  std::string from, to, message;
};

TEST(JobConfig, refuses_by_line_and_key_and_says_what_to_do) {
  const Refusal refusals[] = {
      // Keys.
      {"  width: 256", "  widht: 256", "5: model.widht: unknown key; did you mean 'width'?"},
      {"steps: 200", "step: 200", "25: step: unknown key; did you mean 'steps'?"},
      {"  stages: 2", "  replicas: 2",
       "23: parallel.replicas: unknown key; remove it, or use one of: stages, schedule"},
      {"precision", "checkpoint: { every: 2 }\nprecision",
       "24: checkpoint: unknown key; it comes with a later version: remove it"},
      {"precision", "checkpoint: 5\nprecision",
       "24: checkpoint: unknown key; it comes with a later version: remove it"},
      {"  heads: 4", "  width: 4", "6: width: appears twice, first in line 5; remove one of them"},
      {"  width: 256\n", "", "2: model.width: is missing; add a whole number"},
      {"  train: train.bin\n", "", "10: data.train: is missing; add a text"},
      {"job: tiny\n", "", "1: job: is missing; add a text"},
      // Types.
      {"width: 256", "width: '256'", "5: model.width: '256' is text; write a whole number without quotes"},
      {"width: 256", "width: 256.0", "5: model.width: '256.0' is not a whole number; write one"},
      {"width: 256", "width: [256]", "5: model.width: is a list or a map; write a whole number"},
      {"width: 256", "width:", "5: model.width: has no value; write a whole number"},
      {"clip: 1.0", "clip: much", "21: optimizer.clip: 'much' is not a number; write one"},
      {"clip: 1.0", "clip: .nan", "21: optimizer.clip: '.nan' is not a number; write one"},
      {"tokens: uint16", "tokens: int8", "12: data.tokens: 'int8' is not known; write one of: uint16, uint32, llmc"},
      {"family: llama", "family: bert", "3: model.family: 'bert' is not known; write one of: gpt2, llama"},
      {"family: llama", "family: llama\n  tied: yes", "4: model.tied: 'yes' is not known; write one of: true, false"},
      {"job: tiny", "job: ../tiny",
       "1: job: a name has at most 64 letters, digits, '-', '_' and '.', and no '.' in front; rename it"},
      {"train: train.bin", "train: \"a\\nb\"", "11: data.train: holds a control character; name a file"},
      {"train: train.bin", "train: ''", "11: data.train: is empty; write a text"},
      {"precision: float32", "precision: float16",
       "24: precision: 'float16' is not known; write one of: float32, bfloat16"},
      // Ranges.
      {"width: 256", "width: 0", "5: model.width: '0' is out of range; write a value of at least 1 and at most 131072"},
      {"width: 256", "width: -8",
       "5: model.width: '-8' is out of range; write a value of at least 1 and at most 131072"},
      {"layers: 4", "layers: 99999999999999999999",
       "4: model.layers: '99999999999999999999' is out of range; write a value of at least 1 and at most 4096"},
      {"rate: 6e-4", "rate: 0",
       "19: optimizer.learning_rate: '0' is out of range; write a value above 0 and at most 10"},
      {"rate: 6e-4", "rate: nan",
       "19: optimizer.learning_rate: 'nan' is out of range; write a value above 0 and at most 10"},
      {"rate: 6e-4", "rate: inf",
       "19: optimizer.learning_rate: 'inf' is out of range; write a value above 0 and at most 10"},
      {"rate: 6e-4", "rate: 1e999",
       "19: optimizer.learning_rate: '1e999' is out of range; write a value above 0 and at most 10"},
      {"clip: 1.0", "beta1: 1",
       "21: optimizer.beta1: '1' is out of range; write a value of at least 0 and at most 0.999999"},
      {"seed: 7", "seed: -7", "13: data.seed: '-7' is not a whole number; write one"},
      // Shapes.
      {"heads: 4", "heads: 3", "6: model.heads: 3 heads do not divide width 256; choose a divisor of the width"},
      {"kv_heads: 2", "kv_heads: 3", "7: model.kv_heads: 3 does not divide heads 4; choose a divisor of the heads"},
      {"width: 256", "width: 12",
       "6: model.heads: width / heads is 3, and rotary positions need an even number; change width or heads"},
      {"llama", "gpt2", "7: model.kv_heads: gpt2 has no grouped queries; remove it"},
      {"lanes: 8", "lanes: 5", "17: batch.lanes: 5 lanes do not divide 32 sequences; choose a divisor"},
      {"microbatch: 2", "microbatch: 3",
       "16: batch.microbatch: 3 does not divide the 4 sequences of a lane (sequences / lanes); choose a divisor"},
      {"lanes: 8", "lanes: 8\n  length: 129",
       "18: batch.length: 129 tokens do not fit into the model's context 128; shorten it"},
      {"stages: 2", "stages: 5",
       "23: parallel.stages: 5 stages for 4 layers; a stage needs a layer, so write at most 4"},
      {"vocabulary: 256", "vocabulary: 70000",
       "10: data: uint16 tokens cannot reach a vocabulary of 70000; use tokens: uint32"},
      {"clip: 1.0", "decay_steps: 5",
       "21: optimizer.decay_steps: does nothing without a decay; remove it, or add decay: linear or cosine"},
      {"clip: 1.0", "decay: linear\n  decay_steps: 20",
       "22: optimizer.decay_steps: the decay ends at step 20, within the 20 steps of warm-up; decay for longer"},
      {"clip: 1.0", "decay: linear\n  minimum_learning_rate: 1",
       "22: optimizer.minimum_learning_rate: 1 is above learning_rate 0.0006; make it smaller"},
      // YAML.
      {"model:", "model: &m", "2: anchors and aliases are not allowed; write the values out"},
      {"seed: 7", "seed: *m", "13: not YAML: the referenced anchor is not defined"},
      {"seed: 7", "seed: !!int 7", "13: tags are not allowed; remove 'tag:yaml.org,2002:int'"},
      {"steps: 200", "steps: 200\n---\njob: b", "27: a second document starts here; keep one to a file"},
      {"batch:", "batch", "15: not YAML: illegal map value"},
  };
  for (const Refusal& r : refusals) EXPECT_EQ(refusal(with(r.from, r.to)), "job.yaml:" + r.message);
}

TEST(JobConfig, refuses_shapes_whose_products_would_overflow) {
  std::string big = with("layers: 4", "layers: 4096", with("width: 256", "width: 131072"));
  EXPECT_THAT(refusal(big), StartsWith("job.yaml:4: model.layers: the model has "));
  std::string long_batch = with("context: 128", "context: 1048576", with("lanes: 8", "lanes: 1"));
  EXPECT_EQ(refusal(with("microbatch: 2", "microbatch: 32", long_batch)),
            "job.yaml:16: batch.microbatch: 33554432 tokens a microbatch, and at most 16777216 are possible; make it "
            "smaller");
}

TEST(JobConfig, refuses_what_is_no_map_and_what_is_no_text) {
  EXPECT_EQ(refusal(""), "job.yaml:1: the file is empty; write a job, e.g. examples/tiny.yaml");
  EXPECT_EQ(refusal("# nothing\n"), "job.yaml:1: the file is empty; write a job, e.g. examples/tiny.yaml");
  EXPECT_EQ(refusal("- a\n"), "job.yaml:1: must be a map of keys and values, not a single value or a list");
  EXPECT_EQ(refusal("job: a\nsteps: 1\0002\n" + std::string(1, '\0')),
            "job.yaml:2: holds a byte that is no text; save the file as UTF-8");
  EXPECT_EQ(refusal(with("data:", "data: 5\nx:")),
            "job.yaml:11: x: unknown key; remove it, or use one of: job, model, "
            "data, batch, optimizer, parallel, resilience, precision, steps");
}

// Found by tests/fuzz/job_file_fuzz.cpp: scalars of several lines, and "\\e".
TEST(JobConfig, a_refusal_is_one_line_without_control_characters) {
  EXPECT_EQ(refusal(with("clip: 1.0", "clip: 1\n\n    5")),
            "job.yaml:21: optimizer.clip: '1 5' is not a number; write one");
  EXPECT_EQ(refusal(with("uint16", "\"\\e[31m\"")),
            "job.yaml:12: data.tokens: ' [31m' is not known; write one of: uint16, uint32, llmc");
}

TEST(JobConfig, refuses_bombs_without_building_them) {
  std::string deep = "a: {b: ";
  for (int i = 0; i < 20; ++i) deep += "{a: ";
  EXPECT_EQ(refusal(deep), "job.yaml:1: nested deeper than 16 levels; flatten it");
  EXPECT_THAT(refusal(std::string(1 << 16, '[')), StartsWith("job.yaml:1: "));
  EXPECT_THAT(refusal(std::string(1 << 16, '{')), StartsWith("job.yaml:1: "));
  std::string wide = "a: [";
  for (int i = 0; i < 20'000; ++i) wide += "1,";
  EXPECT_EQ(refusal(wide + "]"), "job.yaml:1: more than 10000 values; this is no configuration");
  EXPECT_EQ(refusal(std::string(2 << 20, 'a')), "job.yaml:1: larger than 1048576 bytes; this is no configuration");
  std::string laughs = "a: &a [x, x]\nb: &b [*a, *a]\n";
  EXPECT_EQ(refusal(laughs), "job.yaml:1: anchors and aliases are not allowed; write the values out");
}

TEST(JobConfig, written_out_it_reads_back_the_same) {
  const std::string variants[] = {
      kJob,
      with("clip: 1.0", "decay: cosine\n  minimum_learning_rate: 1.2345678901234567e-7"),
      with("stages: 2", "stages: auto\n  schedule: gpipe"),
      with("train: train.bin", "train: 'dir \"quoted\\\" #: ü'"),
      with("seed: 7", "seed: 18446744073709551615",
           with("family: llama", "family: llama\n  norm_epsilon: 3.3333333e-7")),
      with("  kv_heads: 2\n", "", with("llama", "gpt2")),
      with("job: tiny", "job: '123'"),
  };
  for (const std::string& text : variants) {
    const JobConfig c = parsed(text);
    EXPECT_EQ(parsed(to_yaml(c)), c) << to_yaml(c);
  }
}

TEST(JobConfig, identity_names_what_can_show_in_the_bits_and_nothing_else) {
  const Digest identity = job_identity(parsed(kJob));
  const Refusal same[] = {{"tiny", "other", ""},
                          {"train.bin", "elsewhere.bin", ""},
                          {"stages: 2", "stages: 4", ""},
                          {"stages: 2", "schedule: gpipe", ""},
                          {"steps: 200", "steps: 300", ""}};
  for (const Refusal& r : same) EXPECT_EQ(job_identity(parsed(with(r.from, r.to))), identity) << r.to;
  const Refusal other[] = {{"layers: 4", "layers: 5", ""},
                           {"uint16", "uint32", ""},
                           {"seed: 7", "seed: 8", ""},
                           {"lanes: 8", "lanes: 4", ""},
                           {"6e-4", "6.1e-4", ""},
                           {"float32", "bfloat16", ""},
                           {"clip: 1.0", "decay: linear", ""},
                           {"lanes: 8", "lanes: 8\n  length: 64", ""}};
  for (const Refusal& r : other) EXPECT_NE(job_identity(parsed(with(r.from, r.to))), identity) << r.to;
  const std::string decaying = with("clip: 1.0", "decay: linear");
  EXPECT_NE(job_identity(parsed(with("steps: 200", "steps: 300", decaying))), job_identity(parsed(decaying)))
      << "the decay's horizon is the number of steps unless given";
}

TEST(JobConfig, every_example_loads) {
  int loaded = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KINTSUGI_SOURCE_DIR "/examples")) {
    if (entry.path().extension() != ".yaml") continue;
    const Result<JobConfig> job = load_job(entry.path().string());
    EXPECT_TRUE(job.ok()) << (job ? "" : job.error().message);
    if (job.ok()) {
      EXPECT_EQ(job->name, entry.path().stem());
    }
    ++loaded;
  }
  EXPECT_GE(loaded, 8);
}

TEST(JobConfig, data_is_found_beside_the_job_file) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "kintsugi_job_config_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "beside.bin") << "x";
  std::ofstream(folder / "job.yaml") << with("train.bin", "beside.bin");
  const Result<JobConfig> job = load_job((folder / "job.yaml").string());
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->data.train, (folder / "beside.bin").string());
  std::filesystem::remove_all(folder);
  EXPECT_THAT(load_job((folder / "job.yaml").string()).error().message, HasSubstr("No such file"));
}

}  // namespace
}  // namespace kintsugi
