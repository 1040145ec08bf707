#include "actors/save_folder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "engine/model/hugging_face.hpp"
#include "engine/model/initialise.hpp"
#include "tests/base/temporary_folder.hpp"

namespace kintsugi::actors {
namespace {

namespace fs = std::filesystem;

JobConfig tiny_job() {
  JobConfig job = *parse_job(
      "job: tiny\n"
      "model: { family: gpt2, layers: 2, width: 32, heads: 2, context: 16, vocabulary: 256 }\n"
      "data: { train: x.bin, tokens: uint16, seed: 7 }\n"
      "batch: { sequences: 8, microbatch: 1, lanes: 8 }\n"
      "optimizer: { name: adamw, learning_rate: 1e-3 }\n"
      "parallel: { stages: 2 }\n"
      "precision: float32\n"
      "steps: 3\n",
      "tiny.yaml");
  return job;
}

struct Saved {
  StateManifest manifest;
  std::vector<std::vector<float>> master;  // by shard
};

// What ranks do between begin and commit.
Saved write_shards(const std::string& staging, const JobConfig& job) {
  const ModelLayout layout(job.model);
  Saved saved;
  saved.manifest.position.job_identity = job_identity(job);
  saved.manifest.job_yaml = to_yaml(job);
  saved.manifest.parameters = saved_parameters(layout.parameters());
  for (const Shard& shard : layout.shards()) {
    std::vector<float> master(static_cast<std::size_t>(shard.count));
    initialise_shard(layout, shard, master);
    const std::vector<float> zeros(master.size());
    saved.manifest.shards.push_back(
        *write_shard(staging, saved.manifest.position, saved.manifest.lineage, shard, {master, zeros, zeros}));
    saved.master.push_back(std::move(master));
  }
  saved.manifest.state_digest = state_digest(saved.manifest);
  return saved;
}

TEST(SaveFolder, the_exported_model_holds_the_master_weights_of_the_shards) {
  const TemporaryFolder folder;
  const JobConfig job = tiny_job();
  SaveFolder save;
  const Result<std::string> staging = save.begin(folder.file("model"));
  ASSERT_TRUE(staging);
  const Saved saved = write_shards(*staging, job);
  const Result<Digest> digest = save.commit(saved.manifest, job, false);
  ASSERT_TRUE(digest) << digest.error().message;
  EXPECT_EQ(*digest, saved.manifest.state_digest);

  const Result<HuggingFaceModel> model = load_hugging_face(folder.file("model"));
  ASSERT_TRUE(model) << model.error().message;
  const ModelLayout& layout = model->layout();
  for (const Shard& shard : layout.shards()) {
    const ParameterGroup& group = layout.group(shard.group);
    std::vector<float> all(static_cast<std::size_t>(group.count));
    for (std::uint32_t p = group.first_parameter; p < group.first_parameter + group.parameter_count; ++p) {
      const Parameter& parameter = layout.parameters()[p];
      ASSERT_TRUE(model->read(p, 0,
                              std::span(all).subspan(static_cast<std::size_t>(parameter.offset),
                                                     static_cast<std::size_t>(parameter.count()))));
    }
    const auto slice =
        std::span(all).subspan(static_cast<std::size_t>(shard.offset), static_cast<std::size_t>(shard.count));
    EXPECT_TRUE(std::ranges::equal(slice, saved.master[shard.id.value]));
  }
}

TEST(SaveFolder, an_abandoned_save_leaves_neither_itself_nor_the_parents_it_made) {
  const TemporaryFolder folder;
  {
    SaveFolder save;
    ASSERT_TRUE(save.begin(folder.file("a/b/model")));
    EXPECT_TRUE(fs::exists(folder.file("a/b/model.tmp")));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(SaveFolder, an_abandoned_save_keeps_parents_that_were_there_and_the_older_save) {
  const TemporaryFolder folder;
  fs::create_directories(folder.file("a/model"));
  {
    SaveFolder save;
    ASSERT_TRUE(save.begin(folder.file("a/model")));
  }
  EXPECT_TRUE(fs::exists(folder.file("a/model")));
  EXPECT_FALSE(fs::exists(folder.file("a/model.tmp")));
}

TEST(SaveFolder, a_probe_leaves_nothing_and_refuses_what_a_save_would_refuse) {
  const TemporaryFolder folder;
  EXPECT_TRUE(SaveFolder::probe(folder.file("a/model")));
  EXPECT_TRUE(fs::is_empty(folder.path()));
  std::ofstream(folder.file("file")) << "mine";
  for (const char* name : {"file", "file/model", "file/b/model"}) {
    const Result<void> refused = SaveFolder::probe(folder.file(name));
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().action, ErrorAction::tell_user);
  }
  EXPECT_TRUE(fs::exists(folder.file("file")));
}

TEST(SaveFolder, a_cancelled_commit_publishes_nothing) {
  const TemporaryFolder folder;
  const JobConfig job = tiny_job();
  {
    SaveFolder save;
    const Result<std::string> staging = save.begin(folder.file("model"));
    ASSERT_TRUE(staging);
    const Saved saved = write_shards(*staging, job);
    const Result<Digest> digest = save.commit(saved.manifest, job, true);
    ASSERT_FALSE(digest);
    EXPECT_EQ(digest.error().action, ErrorAction::cancelled);
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace kintsugi::actors
