#include "tests/engine/pipeline/training_harness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <thread>

#include "base/file.hpp"
#include "base/philox.hpp"
#include "engine/state/save.hpp"
#include "kernels/cpu/cpu_device.hpp"
#include "kernels/fake/fake_device.hpp"
#include "tests/engine/plan/plan_cases.hpp"
#include "transport/shm/shm_carrier.hpp"

namespace kintsugi::test {

namespace shm = transport::shm;

MakeDevice cpu_devices(int threads) {
  return [threads](RankId) { return kernels::cpu::make_cpu_device(threads); };
}

MakeDevice fake_devices(std::uint64_t seed) {
  return [seed](RankId rank) { return kernels::fake::make_fake_device({1, seed + rank.value}); };
}

namespace {

// What one rank's node would hold.
struct RankPlace {
  std::unique_ptr<kernels::Device> device;
  std::unique_ptr<RankBlueprint> blueprint;
  FileDescriptor arena, state;
  shm::Mapping state_mapping;
};

// Nothing here is expected to fail.
template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return std::move(result).value();
}

std::byte* host_address(kernels::Device& device, const kernels::View& view) {
  std::byte* address = nullptr;
  const auto stream = device.create_stream();
  stream->enqueue("address", [&]() -> Result<void> {
    address = device.host_address(view);
    return {};
  });
  EXPECT_TRUE(stream->synchronize(kNoDeadline).ok());
  return address;
}

class Cluster {
 public:
  explicit Cluster(const TrainingRequest& request)
      : request_(request), plan_(testing::plan_for(request.job, request.ranks)), places_(request.ranks) {
    const ModelLayout layout(request.job.model);
    shm::RingShape shape;
    shape.ranks = request.ranks;
    shape.slots = static_cast<std::uint32_t>(std::bit_ceil(most_lent_messages(plan_, layout, request.job)));
    ring_ = must(shm::create_ring_segment(shape));
    for (std::uint32_t r = 0; r < request.ranks; ++r) {
      RankPlace& place = places_[r];
      place.device = request.devices({r});
      place.blueprint = RankBlueprint::make(request.job, plan_, {r}, place.device->ops());
      place.arena = must(shm::create_shared_memory("arena", place.blueprint->arena_bytes));
      place.state = must(shm::create_shared_memory("state", place.blueprint->state_bytes));
      place.state_mapping = must(shm::Mapping::map(place.state.get(), shm::Access::read_write));
    }
  }

  TrainingOutcome run() {
    TrainingOutcome out;
    out.ends.resize(request_.ranks);
    out.accounts.resize(request_.ranks);
    out.shard_digests.resize(plan_.shard_primaries.size());
    std::vector<std::unique_ptr<Trainer>> trainers(request_.ranks);
    for (std::uint32_t r = 0; r < request_.ranks; ++r) trainers[r] = make_trainer(r);
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < request_.ranks; ++r) {
      threads.emplace_back([&, r] { out.ends[r] = run_rank(*trainers[r], r == 0 ? &out : nullptr); });
    }
    for (std::thread& t : threads) t.join();
    collect(trainers, out);
    return out;
  }

 private:
  std::unique_ptr<Trainer> make_trainer(std::uint32_t r) {
    RankPlace& place = places_[r];
    std::vector<RankId> all;
    for (std::uint32_t i = 0; i < request_.ranks; ++i) all.push_back({i});
    auto carrier = must(shm::ShmCarrier::open({{r}, all, {plan_.job, plan_.lineage, plan_.generation}}, ring_.get()));
    RankSegments segments;
    segments.arena = must(place.device->map_shared(place.arena.get(), 0, place.blueprint->arena_bytes, true));
    segments.state = must(place.device->map_shared(place.state.get(), 0, place.blueprint->state_bytes, true));
    segments.state_bytes = place.state_mapping.bytes();
    const kernels::View arena = segments.arena->view();
    carrier->register_own_arena({host_address(*place.device, arena), arena.bytes()});
    for (std::uint32_t i = 0; i < request_.ranks; ++i) {
      if (i == r) continue;
      EXPECT_TRUE(carrier->register_peer_arena({i}, places_[i].arena.get()).ok());
    }
    return must(Trainer::create({std::move(place.blueprint),
                                 *place.device,
                                 std::move(carrier),
                                 clock_,
                                 std::move(segments),
                                 seconds(60),
                                 {r + 1}}));
  }

  Result<void> run_rank(Trainer& trainer, TrainingOutcome* root) {
    if (request_.resume_directory.empty()) {
      KINTSUGI_TRY(trainer.initialise());
    } else {
      KINTSUGI_TRY_ASSIGN(const SavedState saved, SavedState::open(request_.resume_directory));
      KINTSUGI_TRY(trainer.load(saved));
    }
    if (request_.before_run) KINTSUGI_TRY(request_.before_run(trainer));
    return trainer.run({request_.steps}, [&](const DecisionRecord& record, double) {
      if (root != nullptr) root->records.push_back(record);
    });
  }

  void collect(const std::vector<std::unique_ptr<Trainer>>& trainers, TrainingOutcome& out) {
    StateManifest manifest;
    std::string staging;
    if (!request_.save_directory.empty()) staging = must(begin_save(request_.save_directory));
    for (std::uint32_t r = 0; r < request_.ranks; ++r) {
      Trainer& trainer = *trainers[r];
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
    return must(write_shard(staging, trainer.position(), plan_.lineage, b.layout.shard(b.program.shards[index]),
                            {all.subspan(0, n), all.subspan(n, n), all.subspan(2 * n, n)}));
  }

  void finish(StateManifest& manifest) {
    manifest.lineage = plan_.lineage;
    manifest.job_yaml = to_yaml(request_.job);
    manifest.parameters = saved_parameters(ModelLayout(request_.job.model).parameters());
    std::sort(manifest.shards.begin(), manifest.shards.end(),
              [](const SavedShard& a, const SavedShard& b) { return a.shard.id < b.shard.id; });
    static_cast<void>(must(finish_save(request_.save_directory, manifest)));
  }

  const TrainingRequest& request_;
  const SteadyClock clock_;
  const Plan plan_;
  FileDescriptor ring_;
  std::vector<RankPlace> places_;
};

}  // namespace

TrainingOutcome train(const TrainingRequest& request) {
  return Cluster(request).run();
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
