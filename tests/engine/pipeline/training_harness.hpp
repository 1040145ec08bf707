// A job trained by several ranks in one generation, from its start or a saved state to its end.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/control/decision_record.hpp"
#include "tests/base/temporary_folder.hpp"
#include "tests/engine/pipeline/rank_threads.hpp"

namespace kintsugi::test {

MakeDevice cpu_devices(int threads = 1);
MakeDevice fake_devices(std::uint64_t seed);

struct TrainingRequest {
  JobConfig job;
  std::uint32_t ranks = 1;
  std::uint64_t steps = 3;
  MakeDevice devices = cpu_devices();
  // Runs on a rank's thread between its state being there and the first step; an error ends that rank.
  std::function<Result<void>(Trainer&)> before_run;
  std::string resume_directory;  // empty: initialise
  std::string save_directory;    // empty: do not save; state only
};

struct TrainingOutcome {
  std::vector<Result<void>> ends;          // by rank
  std::vector<DecisionRecord> records;     // as rank 0 saw them
  std::vector<Digest> shard_digests;       // by shard, of the final state
  std::vector<Trainer::Account> accounts;  // by rank
  Digest final_digest;                     // the same at every rank that ended well (asserted)
};

TrainingOutcome train(const TrainingRequest& request);

// A small job whose data lies in `folder`: 4 blocks, 8 lanes of two microbatches, tied.
JobConfig tiny_training_job(const TemporaryFolder& folder, std::int64_t stages);

}  // namespace kintsugi::test
