#include "tests/engine/pipeline/training_harness.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.hpp"
#include "base/philox.hpp"
#include "engine/state/save.hpp"
#include "kernels/cpu/cpu_device.hpp"
#include "kernels/fake/fake_device.hpp"
#include "tests/engine/plan/plan_cases.hpp"

namespace kintsugi::test {

MakeDevice cpu_devices(int threads) {
  return [threads](RankId) { return kernels::cpu::make_cpu_device(threads); };
}

MakeDevice fake_devices(std::uint64_t seed) {
  return [seed](RankId rank) { return kernels::fake::make_fake_device({1, seed + rank.value}); };
}

namespace {

class Training {
 public:
  explicit Training(const TrainingRequest& request) : request_(request), ranks_(request.job, request.devices) {
    ranks_.open(testing::plan_for(request.job, request.ranks));
  }

  TrainingOutcome run() {
    TrainingOutcome out;
    out.accounts.resize(request_.ranks);
    out.shard_digests.resize(ranks_.plan().shards.size());
    const auto ends = ranks_.run(false, [&](Trainer& trainer) { return run_rank(trainer, out); });
    for (const auto& [rank, end] : ends) out.ends.push_back(end);
    collect(out);
    return out;
  }

 private:
  Result<void> run_rank(Trainer& trainer, TrainingOutcome& out) {
    if (request_.resume_directory.empty()) {
      KINTSUGI_TRY(trainer.initialise());
    } else {
      KINTSUGI_TRY_ASSIGN(const SavedState saved, SavedState::open(request_.resume_directory));
      KINTSUGI_TRY(trainer.load(saved));
    }
    if (request_.before_run) KINTSUGI_TRY(request_.before_run(trainer));
    return trainer.run({request_.steps}, [&](const DecisionRecord& record, double) { out.records.push_back(record); });
  }

  void collect(TrainingOutcome& out) {
    StateManifest manifest;
    std::string staging;
    if (!request_.save_directory.empty()) staging = must(begin_save(request_.save_directory));
    for (std::uint32_t r = 0; r < request_.ranks; ++r) {
      Trainer& trainer = ranks_.trainer({r});
      out.accounts[r] = trainer.account();
      if (!out.ends[r]) continue;
      if (out.final_digest == Digest{}) out.final_digest = trainer.final_digest();
      EXPECT_EQ(trainer.final_digest(), out.final_digest) << "rank " << r;
      const std::vector<ShardId>& shards = trainer.blueprint().program.shards;
      const std::vector<ShardVersion> versions = trainer.shards().versions();
      for (std::size_t i = 0; i < shards.size(); ++i) {
        EXPECT_EQ(versions[i].version, trainer.step());
        out.shard_digests[shards[i].value] = versions[i].digest;
        if (!staging.empty()) manifest.shards.push_back(save_shard(staging, trainer, i));
      }
      manifest.position = trainer.position();
    }
    if (!staging.empty()) finish(manifest);
  }

  SavedShard save_shard(const std::string& staging, Trainer& trainer, std::size_t index) {
    const std::vector<float> host = must(trainer.shards().read(index));
    const std::span<const float> all(host);
    const std::size_t n = host.size() / 3;
    const RankBlueprint& b = trainer.blueprint();
    return must(write_shard(staging, trainer.position(), ranks_.plan().lineage, b.layout.shard(b.program.shards[index]),
                            {all.subspan(0, n), all.subspan(n, n), all.subspan(2 * n, n)}));
  }

  void finish(StateManifest& manifest) {
    manifest.lineage = ranks_.plan().lineage;
    manifest.job_yaml = to_yaml(request_.job);
    manifest.parameters = saved_parameters(ModelLayout(request_.job.model).parameters());
    std::sort(manifest.shards.begin(), manifest.shards.end(),
              [](const SavedShard& a, const SavedShard& b) { return a.shard.id < b.shard.id; });
    static_cast<void>(must(finish_save(request_.save_directory, manifest)));
  }

  const TrainingRequest& request_;
  RankThreads ranks_;
};

}  // namespace

TrainingOutcome train(const TrainingRequest& request) {
  return Training(request).run();
}

JobConfig tiny_training_job(const TemporaryFolder& folder, std::int64_t stages) {
  JobConfig job;
  job.name = "tiny";
  job.model = {.family = ModelFamily::gpt2,
               .layers = 4,
               .width = 32,
               .heads = 2,
               .kv_heads = 2,
               .hidden = 128,
               .context = 24,
               .vocabulary = 61,
               .tied = true,
               .seed = 5};
  job.batch = {.sequences = 16, .microbatch = 1, .lanes = 8, .length = 24};
  job.optimizer = {.learning_rate = 1e-2, .warmup_steps = 2, .weight_decay = 0.1, .clip = 1.0};
  job.parallel.stages = stages;
  job.steps = 4;
  job.data = {.train = folder.file("train.bin"), .tokens = TokenFormat::uint16, .seed = 3};
  std::vector<std::uint16_t> tokens(4001);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::uint16_t>(philox_u64(philox_key(1), i / 3, 0) % 61);
  }
  EXPECT_TRUE(write_file_atomically(job.data.train, std::as_bytes(std::span(tokens))).ok());
  return job;
}

}  // namespace kintsugi::test
