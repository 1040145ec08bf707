#include "sim/protocol/watch.hpp"

#include <fmt/format.h>

namespace kintsugi::sim::protocol {

namespace {

// What of a record the job alone decides.
bool same_decision(const DecisionRecord& a, const DecisionRecord& b) {
  return a.job == b.job && a.lineage == b.lineage && a.step == b.step && a.outcome == b.outcome &&
         a.updates == b.updates && a.clip_scale == b.clip_scale && a.learning_rate == b.learning_rate &&
         a.bias_correction1 == b.bias_correction1 && a.bias_correction2 == b.bias_correction2 && a.loss == b.loss &&
         a.gradient_norm == b.gradient_norm && a.previous_digest == b.previous_digest;
}

}  // namespace

void Watch::record_made(const DecisionRecord& record) {
  if (!same_decision(record, oracle_.record(record.step))) {
    fail(fmt::format("the record of step {} (generation {}) is not that of the run without faults", record.step.value,
                     to_string(record.generation)));
  }
  records_.try_emplace(record.step, record);
}

void Watch::copy_is_stable(RankId holder, const CopyMemory& copy) {
  const Mark expected = oracle_.states(copy.version)[copy.shard.value];
  const bool whole = copy.digest == digest_of_state(copy.state);
  if (copy.state == expected && whole && copy.updates == oracle_.record(copy.version).updates) return;
  fail(fmt::format("rank {} has shard {} at step {} (t = {}) with other state than the run without faults",
                   holder.value, copy.shard.value, copy.version.value, copy.updates));
}

void Watch::reduced(RankId primary, ShardId shard, Step step, const Sum& sum, Mark) {
  const std::uint32_t microbatches = job_.microbatches();
  const std::uint64_t all = microbatches == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << microbatches) - 1;
  if (sum.samples == all) return;
  fail(fmt::format("rank {} reduced shard {} of step {} over microbatches {:#x} of {:#x}", primary.value, shard.value,
                   step.value, sum.samples, all));
}

void Watch::sums_are_added(RankId who, const Sum& left, const Sum& right) {
  if ((left.samples & right.samples) == 0) return;
  fail(fmt::format("rank {} adds microbatches {:#x} twice", who.value, left.samples & right.samples));
}

void Watch::prepared_by(RankId rank, Generation generation, const Digest& plan) {
  const auto at = plans_.find(generation);
  if (at != plans_.end() && at->second == plan) return;
  fail(fmt::format("rank {} acts on another plan than generation {} has", rank.value, to_string(generation)));
}

void Watch::planned(Generation generation, const Digest& plan) {
  const auto [at, is_new] = plans_.emplace(generation, plan);
  if (!is_new) fail(fmt::format("generation {} was planned twice", to_string(generation)));
}

void Watch::fenced(Generation generation) {
  if (generation <= newest_fence_) {
    fail(fmt::format("fence {} follows fence {}", to_string(generation), to_string(newest_fence_)));
  }
  newest_fence_ = generation;
}

void Watch::promised(Generation durable, Generation told) {
  if (durable >= told) return;
  fail(fmt::format("generation {} was told before it was durable", to_string(told)));
}

void Watch::accepted(RankId rank, Generation promised, Generation message) {
  if (message >= promised) return;
  fail(fmt::format("rank {} promised generation {} and acts on a message of {}", rank.value, to_string(promised),
                   to_string(message)));
}

void Watch::final_is(Step step) {
  newest_final_ = std::max(newest_final_, step);
}

void Watch::finished(const Digest& digest) {
  if (digest != oracle_.final_digest()) fail("the final digest is not that of the run without faults");
}

// What is planned takes effect between two steps.
void Watch::work_is_interrupted() {
  if (!struck_) fail("a step was interrupted though nothing failed");
}

void Watch::job_lost_state(const std::string& why) {
  if (is_loss_excused()) return;
  fail(fmt::format("state is lost though {} failure domains were hurt of {} that may be: {}", hurt_.size(), tolerated_,
                   why));
}

void Watch::went_back(Step from, Step to) {
  if (is_loss_excused()) return;
  fail(fmt::format("the job went back from step {} to step {}", from.value, to.value));
}

}  // namespace kintsugi::sim::protocol
