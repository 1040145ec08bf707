#include "engine/data/batch_reader.hpp"

#include <algorithm>

#include "engine/data/sample_permutation.hpp"

namespace kintsugi {

SampleOrder::SampleOrder(std::uint64_t samples, const BatchConfig& batch, std::uint64_t seed)
    : samples_(samples),
      sequences_(static_cast<std::uint64_t>(batch.sequences)),
      per_lane_(static_cast<std::uint64_t>(batch.sequences_per_lane())),
      microbatch_(static_cast<std::uint64_t>(batch.microbatch)),
      lanes_(static_cast<std::uint64_t>(batch.lanes)),
      seed_(seed) {
  KINTSUGI_ASSERT(samples >= 1);
  KINTSUGI_ASSERT(microbatch_ >= 1 && per_lane_ % microbatch_ == 0 && per_lane_ * lanes_ == sequences_);
}

std::uint64_t SampleOrder::sample_at(std::uint64_t position) const {
  return SamplePermutation(samples_, seed_, position / samples_)(position % samples_);
}

void SampleOrder::samples_of(MicrobatchKey key, std::span<std::uint64_t> out) const {
  KINTSUGI_ASSERT(key.lane.value < lanes_ && (key.microbatch + std::uint64_t{1}) * microbatch_ <= per_lane_);
  KINTSUGI_ASSERT(out.size() == microbatch_);
  std::uint64_t position = position_of(key.from) + key.lane.value * per_lane_ + key.microbatch * microbatch_;
  for (std::uint64_t& sample : out) sample = sample_at(position++);
}

Result<BatchReader> BatchReader::make(std::shared_ptr<const TokenFile> file, const BatchConfig& batch,
                                      std::uint64_t seed, std::int64_t vocabulary) {
  KINTSUGI_ASSERT(batch.length >= 1 && vocabulary >= 1 && vocabulary <= INT32_MAX);
  const std::uint64_t samples = sample_count(file->token_count(), static_cast<std::uint64_t>(batch.length));
  if (samples == 0) {
    return Error{ErrorAction::tell_user, file->path() + ": has " + std::to_string(file->token_count()) +
                                             " tokens; one sample of batch.length " + std::to_string(batch.length) +
                                             " needs one token more than that. Use a longer file or a shorter length."};
  }
  return BatchReader(std::move(file), batch, SampleOrder(samples, batch, seed), vocabulary);
}

BatchReader::BatchReader(std::shared_ptr<const TokenFile> file, const BatchConfig& batch, SampleOrder order,
                         std::int64_t vocabulary)
    : file_(std::move(file)),
      order_(order),
      sequences_(static_cast<std::size_t>(batch.microbatch)),
      length_(static_cast<std::size_t>(batch.length)),
      vocabulary_(vocabulary) {}

Result<void> BatchReader::fill(MicrobatchKey key, std::span<std::int32_t> tokens,
                               std::span<std::int32_t> targets) const {
  KINTSUGI_ASSERT(tokens.size() == rows() && targets.size() == rows());
  std::vector<std::uint64_t> samples(sequences_);
  order_.samples_of(key, samples);
  for (std::size_t i = 0; i < sequences_; ++i) {
    const std::uint64_t first = samples[i] * length_;
    KINTSUGI_TRY(file_->read(first, tokens.subspan(i * length_, length_), vocabulary_));
    KINTSUGI_TRY(file_->read(first + 1, targets.subspan(i * length_, length_), vocabulary_));
  }
  return {};
}

void BatchReader::will_need(MicrobatchKey key) const {
  std::vector<std::uint64_t> samples(sequences_);
  order_.samples_of(key, samples);
  for (const std::uint64_t sample : samples) file_->will_need(sample * length_, length_ + 1);
}

}  // namespace kintsugi
