// What the vote of a step yields (DESIGN section 2). Every message caused by a step carries it; holding it is knowing
// that the step is final.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/digest.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "schemas/record.capnp.h"

namespace kintsugi {

enum class Outcome : std::uint8_t { commit, skip };

struct DecisionRecord {
  JobId job;
  Lineage lineage;
  Generation generation;
  Step step;
  Outcome outcome = Outcome::commit;
  std::uint64_t updates = 0;  // t after this step
  float clip_scale = 1;
  float learning_rate = 0;
  float bias_correction1 = 1;
  float bias_correction2 = 1;
  float loss = 0;                     // mean over the step's tokens
  float gradient_norm = 0;            // before clipping
  std::uint16_t failure_domains = 1;  // R_eff
  Digest previous_digest;             // of committed state after step - 1
  bool stop = false;                  // the job ends after this step
  // All members were ready to change to this generation: none works beyond this step under the present one.
  std::optional<Generation> next_generation;
  bool operator==(const DecisionRecord&) const = default;
};

void write_record(const DecisionRecord& record, schemas::DecisionRecord::Builder out);
DecisionRecord read_record(schemas::DecisionRecord::Reader in);

std::vector<std::byte> encode_record(const DecisionRecord& record);
Result<DecisionRecord> decode_record(std::span<const std::byte> bytes);

}  // namespace kintsugi
