#include "engine/control/decision_record.hpp"

#include <bit>

#include "schemas/codec.hpp"

namespace kintsugi {

namespace {
std::uint32_t bits(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
float from_bits(std::uint32_t value) {
  return std::bit_cast<float>(value);
}
}  // namespace

void write_record(const DecisionRecord& record, schemas::DecisionRecord::Builder out) {
  out.setJob(record.job.value);
  out.setLineage(record.lineage.value);
  out.initGeneration().setEpoch(record.generation.epoch);
  out.getGeneration().setCounter(record.generation.counter);
  out.setStep(record.step.value);
  out.setOutcome(record.outcome == Outcome::commit ? schemas::Outcome::COMMIT : schemas::Outcome::SKIP);
  out.setUpdates(record.updates);
  out.setClipScaleBits(bits(record.clip_scale));
  out.setLearningRateBits(bits(record.learning_rate));
  out.setBiasCorrection1Bits(bits(record.bias_correction1));
  out.setBiasCorrection2Bits(bits(record.bias_correction2));
  out.setLossBits(bits(record.loss));
  out.setGradientNormBits(bits(record.gradient_norm));
  out.setFailureDomains(record.failure_domains);
  out.initPreviousDigest().setHigh(record.previous_digest.high);
  out.getPreviousDigest().setLow(record.previous_digest.low);
  auto effects = out.initEffects((record.stop ? 1U : 0U) + (record.next_generation ? 1U : 0U));
  if (record.stop) effects[0].setStop();
  if (record.next_generation) {
    auto plan = effects[effects.size() - 1].initPlan();
    plan.setEpoch(record.next_generation->epoch);
    plan.setCounter(record.next_generation->counter);
  }
}

DecisionRecord read_record(schemas::DecisionRecord::Reader in) {
  DecisionRecord record;
  record.job = {in.getJob()};
  record.lineage = {in.getLineage()};
  record.generation = {in.getGeneration().getEpoch(), in.getGeneration().getCounter()};
  record.step = {in.getStep()};
  record.outcome = in.getOutcome() == schemas::Outcome::COMMIT ? Outcome::commit : Outcome::skip;
  record.updates = in.getUpdates();
  record.clip_scale = from_bits(in.getClipScaleBits());
  record.learning_rate = from_bits(in.getLearningRateBits());
  record.bias_correction1 = from_bits(in.getBiasCorrection1Bits());
  record.bias_correction2 = from_bits(in.getBiasCorrection2Bits());
  record.loss = from_bits(in.getLossBits());
  record.gradient_norm = from_bits(in.getGradientNormBits());
  record.failure_domains = in.getFailureDomains();
  record.previous_digest = {in.getPreviousDigest().getHigh(), in.getPreviousDigest().getLow()};
  for (const auto effect : in.getEffects()) {
    record.stop = record.stop || effect.isStop();
    if (effect.isPlan()) record.next_generation = {effect.getPlan().getEpoch(), effect.getPlan().getCounter()};
  }
  return record;
}

std::vector<std::byte> encode_record(const DecisionRecord& record) {
  capnp::MallocMessageBuilder message;
  write_record(record, message.initRoot<schemas::DecisionRecord>());
  return encode_message(message);
}

Result<DecisionRecord> decode_record(std::span<const std::byte> bytes) {
  return read_message<schemas::DecisionRecord>(bytes, "a decision record",
                                               [](auto in) -> Result<DecisionRecord> { return read_record(in); });
}

}  // namespace kintsugi
