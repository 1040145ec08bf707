#include "sim/protocol/shape.hpp"

#include "sim/protocol/marks.hpp"

namespace kintsugi::sim::protocol {

JobConfig job_of(const Shape& shape) {
  JobConfig job;
  job.name = "simulated";
  job.model = {.family = ModelFamily::gpt2,
               .layers = shape.blocks,
               .width = 8,
               .heads = 2,
               .kv_heads = 2,
               .hidden = 32,
               .context = 16,
               .vocabulary = 64,
               .tied = shape.tied,
               .seed = shape.seed};
  job.data.seed = shape.seed;
  job.batch = {.sequences = shape.lanes * shape.per_lane, .microbatch = 1, .lanes = shape.lanes, .length = 16};
  job.optimizer.learning_rate = 1e-3;
  job.optimizer.warmup_steps = 3;
  job.optimizer.decay = LearningRateDecay::linear;
  job.optimizer.decay_steps = shape.steps + 2;
  job.optimizer.clip = 1;
  job.parallel.stages = shape.stages;
  job.parallel.schedule = shape.schedule;
  job.resilience.replicas = shape.replicas;
  job.resilience.orphan_limit = shape.orphan_limit;
  job.steps = shape.steps;
  return job;
}

Job::Job(const Shape& s) : shape(s), config(job_of(s)), layout(config.model) {}

bool Job::is_skipped(Step step) const {
  return shape.skip_one_in != 0 && mix(7, shape.seed, step.value) % shape.skip_one_in == 0;
}

}  // namespace kintsugi::sim::protocol
