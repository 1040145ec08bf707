#include "engine/pipeline/trainer.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/file.hpp"
#include "engine/data/batch_reader.hpp"
#include "engine/state/learning_rate.hpp"
#include "kernels/cpu/cpu_device.hpp"
#include "tests/engine/model/whole_model.hpp"
#include "tests/engine/pipeline/training_harness.hpp"

namespace kintsugi::test {
namespace {

void expect_all_well(const TrainingOutcome& outcome) {
  for (const Result<void>& end : outcome.ends) EXPECT_TRUE(end.ok()) << (end.ok() ? "" : end.error().message);
}

TEST(Trainer, no_number_of_ranks_or_stages_shows_in_the_bits) {
  const TemporaryFolder folder;
  for (const Precision precision : {Precision::float32, Precision::bfloat16}) {
    std::vector<TrainingOutcome> outcomes;
    for (const auto& [ranks, stages] :
         std::vector<std::pair<std::uint32_t, std::int64_t>>{{1, 1}, {2, 1}, {3, 1}, {5, 2}, {3, 4}, {8, 1}, {7, 4}}) {
      TrainingRequest request{tiny_training_job(folder, stages), ranks};
      request.job.precision = precision;
      outcomes.push_back(train(request));
      expect_all_well(outcomes.back());
      EXPECT_EQ(outcomes.back().final_digest, outcomes.front().final_digest)
          << ranks << " ranks, " << stages << " stages";
      EXPECT_EQ(outcomes.back().records, outcomes.front().records);
    }
  }
}

TEST(Trainer, ranks_that_hold_no_shard_work_their_cells_all_the_same) {
  const TemporaryFolder folder;
  const JobConfig job = tiny_training_job(folder, 4);
  const Digest alone = train({job, 1, 2}).final_digest;
  const TrainingOutcome crowd = train({job, 32, 2});
  expect_all_well(crowd);
  EXPECT_EQ(crowd.final_digest, alone);
  EXPECT_TRUE(std::any_of(crowd.accounts.begin(), crowd.accounts.end(),
                          [](const Trainer::Account& a) { return a.state_bytes == 0; }));
}

TEST(Trainer, what_is_sent_is_received) {
  const TemporaryFolder folder;
  const TrainingOutcome outcome = train({tiny_training_job(folder, 2), 4, 2});
  expect_all_well(outcome);
  for (std::uint32_t a = 0; a < 4; ++a) {
    for (const auto& [b, traffic] : outcome.accounts[a].traffic) {
      EXPECT_EQ(traffic.bytes_sent, outcome.accounts[b.value].traffic.at({a}).bytes_received) << a << " to " << b.value;
    }
  }
}

TEST(Trainer, gpipe_and_1f1b_give_the_same_bits) {
  const TemporaryFolder folder;
  TrainingRequest request{tiny_training_job(folder, 4), 4};
  const TrainingOutcome one_f_one_b = train(request);
  request.job.parallel.schedule = ScheduleKind::gpipe;
  const TrainingOutcome gpipe = train(request);
  expect_all_well(gpipe);
  EXPECT_EQ(gpipe.final_digest, one_f_one_b.final_digest);
}

TEST(Trainer, nothing_of_the_engine_touches_device_memory_or_forgets_an_order) {
  const TemporaryFolder folder;
  const TrainingOutcome reference = train({tiny_training_job(folder, 2), 1});
  for (const std::uint32_t ranks : {1U, 3U, 5U}) {
    TrainingRequest request{tiny_training_job(folder, 2), ranks};
    request.devices = fake_devices(7 * ranks);
    const TrainingOutcome outcome = train(request);
    expect_all_well(outcome);
    EXPECT_EQ(outcome.final_digest, reference.final_digest);
  }
}

TEST(Trainer, threads_do_not_show_in_the_bits) {
  const TemporaryFolder folder;
  TrainingRequest request{tiny_training_job(folder, 1), 2};
  const Digest one = train(request).final_digest;
  request.devices = cpu_devices(3);
  EXPECT_EQ(train(request).final_digest, one);
}

// The plainest trainer there is: one process, no plan, no messages.
TEST(Trainer, three_ranks_compute_what_one_plain_loop_computes) {
  const TemporaryFolder folder;
  const JobConfig job = tiny_training_job(folder, 2);
  const TrainingOutcome outcome = train({job, 3, 3});
  expect_all_well(outcome);

  const auto device = kernels::cpu::make_cpu_device(1);
  WholeModel model(*device, job.model, {job.precision, {job.batch.microbatch, job.batch.length}, job.batch.lanes});
  model.initialise();
  const auto reader = *BatchReader::make(*TokenFile::open(job.data.train, job.data.tokens), job.batch, job.data.seed,
                                         job.model.vocabulary);
  const float loss_scale = static_cast<float>(1.0 / static_cast<double>(job.batch.tokens_per_step()));
  std::vector<Digest> digests;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    for (std::uint32_t lane = 0; lane < job.batch.lanes; ++lane) {
      std::vector<Microbatch> microbatches;
      for (std::uint32_t m = 0; m < job.batch.microbatches_per_lane(); ++m) {
        Microbatch batch{std::vector<std::int32_t>(reader.rows()), std::vector<std::int32_t>(reader.rows())};
        ASSERT_TRUE(reader.fill({{step - 1}, {lane}, m}, batch.tokens, batch.targets).ok());
        microbatches.push_back(std::move(batch));
      }
      model.run_lane(lane, microbatches, loss_scale);
    }
    model.reduce();
    const DecisionRecord& record = outcome.records[step - 1];
    EXPECT_NEAR(record.gradient_norm, std::sqrt(model.squared_gradient_norm()), 1e-6);
    kernels::AdamwScalars scalars = update_scalars(job.optimizer, {step}, step, record.gradient_norm);
    scalars.clip_scale = record.clip_scale;
    digests = model.update(scalars);
  }
  EXPECT_EQ(outcome.shard_digests, digests);
}

TEST(Trainer, the_work_is_shared_and_counted_once) {
  const TemporaryFolder folder;
  const JobConfig job = tiny_training_job(folder, 2);
  const TrainingOutcome alone = train({job, 1});
  const TrainingOutcome shared = train({job, 4});
  std::uint64_t cells = 0, microbatches = 0;
  double flops = 0;
  for (const Trainer::Account& a : shared.accounts) {
    cells += a.cells;
    microbatches += a.work.backward;
    flops += a.work.flops;
    EXPECT_LT(a.state_bytes, alone.accounts[0].state_bytes / 2);
    EXPECT_LT(a.parameter_bytes, alone.accounts[0].parameter_bytes);
    EXPECT_GT(a.traffic.size(), 0U);
  }
  EXPECT_EQ(cells, 3U * 2 * 8);
  EXPECT_EQ(cells, alone.accounts[0].cells);
  EXPECT_EQ(microbatches, alone.accounts[0].work.backward);
  EXPECT_NEAR(flops, alone.accounts[0].work.flops, 1e-9 * flops);
}

TEST(Trainer, a_saved_state_goes_on_under_another_plan_as_if_it_had_never_stopped) {
  const TemporaryFolder folder;
  const JobConfig job = tiny_training_job(folder, 2);
  const Digest straight = train({job, 2, 4}).final_digest;
  TrainingRequest first{job, 3, 2};
  first.save_directory = folder.file("save");
  expect_all_well(train(first));
  TrainingRequest second{job, 5, 4};
  second.resume_directory = first.save_directory;
  const TrainingOutcome resumed = train(second);
  expect_all_well(resumed);
  EXPECT_EQ(resumed.final_digest, straight);
  EXPECT_EQ(resumed.records.size(), 2U);

  second.job.data.seed += 1;
  const TrainingOutcome refused = train(second);
  for (const Result<void>& end : refused.ends) {
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(end.error().action, ErrorAction::tell_user);
  }
}

TEST(Trainer, another_seed_weight_or_sample_changes_the_digest) {
  const TemporaryFolder folder;
  TrainingRequest request{tiny_training_job(folder, 1), 1, 1};
  const Digest base = train(request).final_digest;
  TrainingRequest other = request;
  other.job.data.seed += 1;
  EXPECT_NE(train(other).final_digest, base);
  other = request;
  other.job.model.seed += 1;
  EXPECT_NE(train(other).final_digest, base);

  request.steps = 11;  // a whole pass, so that every sample is used
  const Digest pass = train(request).final_digest;
  std::vector<std::byte> tokens = *read_file(request.job.data.train, 1 << 20);
  tokens[2 * 1000] = static_cast<std::byte>(static_cast<unsigned char>(tokens[2 * 1000]) ^ 1);
  ASSERT_TRUE(write_file_atomically(request.job.data.train, tokens).ok());
  EXPECT_NE(train(request).final_digest, pass);
}

// Weights blow up at the first update; the gradients of the second step are not finite.
TEST(Trainer, steps_whose_gradients_are_not_finite_are_skipped_alike_by_every_plan) {
  const TemporaryFolder folder;
  TrainingRequest request{tiny_training_job(folder, 2), 1, 3};
  request.job.optimizer.learning_rate = 1e30;
  request.job.optimizer.warmup_steps = 0;
  const TrainingOutcome alone = train(request);
  expect_all_well(alone);
  EXPECT_EQ(alone.records[0].outcome, Outcome::commit);
  EXPECT_EQ(alone.records[2].outcome, Outcome::skip);
  EXPECT_EQ(alone.records[2].updates, 1U);
  request.ranks = 5;
  const TrainingOutcome shared = train(request);
  EXPECT_EQ(shared.final_digest, alone.final_digest);
}

TEST(Trainer, a_cancel_ends_every_wait_at_once_and_a_lost_peer_is_not_waited_for_beyond_it) {
  const TemporaryFolder folder;
  TrainingRequest request{tiny_training_job(folder, 2), 4, 1000};
  std::atomic<int> ready{0};
  std::vector<Trainer*> trainers(4);
  request.before_run = [&](Trainer& trainer) -> Result<void> {
    const std::uint32_t rank = trainer.blueprint().program.rank.value;
    trainers[rank] = &trainer;
    ready.fetch_add(1);
    ready.notify_all();
    for (int seen = ready.load(); seen < 4; seen = ready.load()) ready.wait(seen);
    if (rank != 3) return {};
    // Rank 3 never starts: the others wait for it until they are told.
    for (Trainer* t : trainers) t->cancel({ErrorAction::cancelled, "rank 3 is gone"});
    return Error{ErrorAction::cancelled, "gone"};
  };
  const SteadyClock clock;
  const Instant before = clock.now();
  const TrainingOutcome outcome = train(request);
  EXPECT_LT((clock.now() - before).ms(), 5'000);
  for (const Result<void>& end : outcome.ends) {
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(end.error().action, ErrorAction::cancelled);
  }
}

// Rounding of activations and weights to 8 bits of mantissa shows in single steps, not in where training goes.
TEST(Trainer, bfloat16_stays_within_one_percent_of_float32_over_200_steps) {
  const TemporaryFolder folder;
  TrainingRequest request{tiny_training_job(folder, 1), 2, 200};
  request.job.optimizer.learning_rate = 1e-3;
  const TrainingOutcome full = train(request);
  request.job.precision = Precision::bfloat16;
  const TrainingOutcome half = train(request);
  expect_all_well(full);
  expect_all_well(half);
  ASSERT_LT(full.records.back().loss, 0.9F * full.records.front().loss) << "nothing was learned";
  for (std::size_t i = 0; i < full.records.size(); ++i) {
    EXPECT_NEAR(half.records[i].loss, full.records[i].loss, 0.01 * full.records[i].loss) << "step " << i + 1;
  }
}

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds_of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

// One rank of a pipeline is held back; the others sleep. Processor time of the whole process, harness and held rank
// included.
TEST(Trainer, ranks_that_wait_for_a_stalled_stage_use_under_two_percent_of_a_core) {
  const TemporaryFolder folder;
  TrainingRequest request{tiny_training_job(folder, 2), 4, 2};
  const SteadyClock clock;
  double used = 0, held = 0;
  request.before_run = [&](Trainer& trainer) -> Result<void> {
    if (trainer.blueprint().program.rank.value != 2) return {};
    // The others get to their waits within the first deadline; the second is measured.
    static_cast<void>(Event().wait(clock.now() + milliseconds(500)).ok());
    const Instant began = clock.now();
    const double before = processor_seconds();
    static_cast<void>(Event().wait(began + milliseconds(1500)).ok());
    used = processor_seconds() - before;
    held = (clock.now() - began).seconds();
    return {};
  };
  expect_all_well(train(request));
  EXPECT_LT(used, 0.02 * held);
}

}  // namespace
}  // namespace kintsugi::test
