// Which sample was used by which step (promise C4), from the steps that a report's decision records made final. The order is
// computed as training computes it, microbatch by microbatch; what is checked is that no step is missing or there twice, and
// that no sample is used twice in a pass or left out of a whole one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/data/batch_reader.hpp"

namespace kintsugi {

struct DataAudit {
  std::uint64_t samples = 0;       // of the dataset
  std::uint64_t sequences = 0;     // used by all steps
  std::uint64_t first_place = 0;   // in the endless row of passes
  std::uint64_t whole_passes = 0;  // of which every sample was used
  std::vector<std::string> problems;
};

// The samples of `step`, in the order of its sequences: by lane, then microbatch.
std::vector<std::uint64_t> samples_of_step(const SampleOrder& order, const BatchConfig& batch, Step step);

// `steps`: final ones, in the order of the report. Memory: a bit a sample.
DataAudit audit_steps(std::span<const Step> steps, const SampleOrder& order, const BatchConfig& batch,
                      std::uint64_t samples);

}  // namespace kintsugi
