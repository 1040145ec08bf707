// Which tokens a microbatch is made of: a function of the job, the file and the step alone (DESIGN 3.2).
//
// Sample s is tokens [s * length, (s + 1) * length], the last one as target only; an incomplete sample at the end of
// the file is dropped. Sequence i of the step that follows `from` final steps stands at place from * sequences + i of
// the endless row of passes, each a fresh permutation. Lane l holds sequences [l, l + 1) * sequences / lanes of the
// step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "engine/data/token_file.hpp"
#include "engine/model/job_config.hpp"

namespace kintsugi {

// One microbatch of a run: the step that follows `from` final steps.
struct MicrobatchKey {
  Step from;
  LaneId lane;
  std::uint32_t microbatch = 0;  // within the lane
  auto operator<=>(const MicrobatchKey&) const = default;
};

// Samples of `length` in `tokens` tokens.
constexpr std::uint64_t sample_count(std::uint64_t tokens, std::uint64_t length) {
  return tokens == 0 ? 0 : (tokens - 1) / length;
}

// The order of samples.
class SampleOrder {
 public:
  // samples >= 1; `batch` as parse_job lets it through.
  SampleOrder(std::uint64_t samples, const BatchConfig& batch, std::uint64_t seed);

  // Place in the row of passes after `from` final steps.
  std::uint64_t position_of(Step from) const { return from.value * sequences_; }
  std::uint64_t sample_at(std::uint64_t position) const;
  // out.size() == batch.microbatch.
  void samples_of(MicrobatchKey key, std::span<std::uint64_t> out) const;

 private:
  std::uint64_t samples_;
  std::uint64_t sequences_;
  std::uint64_t per_lane_;
  std::uint64_t microbatch_;
  std::uint64_t lanes_;
  std::uint64_t seed_;
};

// What a prefetcher draws from. Called from its thread.
class MicrobatchSource {
 public:
  virtual ~MicrobatchSource() = default;
  // int32 each of `tokens` and `targets` in fill.
  virtual std::size_t rows() const = 0;
  virtual Result<void> fill(MicrobatchKey key, std::span<std::int32_t> tokens,
                            std::span<std::int32_t> targets) const = 0;
  // A hint that fill(key) comes soon; returns at once.
  virtual void will_need(MicrobatchKey key) const = 0;
};

// Immutable; any thread.
class BatchReader final : public MicrobatchSource {
 public:
  // Error{tell_user}: the file is shorter than one sample.
  static Result<BatchReader> make(std::shared_ptr<const TokenFile> file, const BatchConfig& batch, std::uint64_t seed,
                                  std::int64_t vocabulary);

  const SampleOrder& order() const { return order_; }
  std::size_t rows() const override { return sequences_ * length_; }
  // tokens, targets: (microbatch, length) int32. Error{tell_user}: a token outside the vocabulary.
  Result<void> fill(MicrobatchKey key, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const override;
  void will_need(MicrobatchKey key) const override;

 private:
  BatchReader(std::shared_ptr<const TokenFile> file, const BatchConfig& batch, SampleOrder order,
              std::int64_t vocabulary);

  std::shared_ptr<const TokenFile> file_;
  SampleOrder order_;
  std::size_t sequences_;  // of a microbatch
  std::size_t length_;
  std::int64_t vocabulary_;
};

}  // namespace kintsugi
