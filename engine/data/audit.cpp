#include "engine/data/audit.hpp"

namespace kintsugi {

namespace {

constexpr std::size_t kMostProblems = 20;

// The samples of the pass at hand.
class Passes {
 public:
  Passes(DataAudit& audit, std::uint64_t place) : audit_(audit), used_(audit.samples, false) { begin(place); }

  void use(std::uint64_t place, std::uint64_t sample, Step step) {
    if (place / audit_.samples != pass_) begin(place);
    if (used_[sample]) {
      problem("step " + to_string(step) + " uses sample " + std::to_string(sample) + " a second time in pass " +
              std::to_string(pass_ + 1));
    }
    used_[sample] = true;
    ++count_;
  }
  void end() {
    if (!from_its_start_ || count_ < audit_.samples) return;
    for (const bool used : used_) {
      if (!used) return problem("pass " + std::to_string(pass_ + 1) + " left samples out");
    }
    ++audit_.whole_passes;
  }
  void problem(std::string text) {
    if (audit_.problems.size() < kMostProblems) audit_.problems.push_back(std::move(text));
  }

 private:
  void begin(std::uint64_t place) {
    end();
    pass_ = place / audit_.samples;
    from_its_start_ = place % audit_.samples == 0;
    used_.assign(audit_.samples, false);
    count_ = 0;
  }

  DataAudit& audit_;
  std::vector<bool> used_;
  std::uint64_t pass_ = 0, count_ = 0;
  bool from_its_start_ = false;
};

}  // namespace

std::vector<std::uint64_t> samples_of_step(const SampleOrder& order, const BatchConfig& batch, Step step) {
  std::vector<std::uint64_t> samples;
  std::vector<std::uint64_t> some(static_cast<std::size_t>(batch.microbatch));
  for (std::uint32_t lane = 0; lane < batch.lanes; ++lane) {
    for (std::uint32_t m = 0; m < batch.microbatches_per_lane(); ++m) {
      order.samples_of({{step.value - 1}, {lane}, m}, some);
      samples.insert(samples.end(), some.begin(), some.end());
    }
  }
  return samples;
}

DataAudit audit_steps(std::span<const Step> steps, const SampleOrder& order, const BatchConfig& batch,
                      std::uint64_t samples) {
  DataAudit audit;
  audit.samples = samples;
  if (steps.empty()) return audit;
  KINTSUGI_ASSERT(steps.front().value > 0);
  audit.first_place = order.position_of({steps.front().value - 1});
  Passes passes(audit, audit.first_place);
  Step expected = steps.front();
  for (const Step step : steps) {
    if (step != expected) {
      passes.problem("step " + to_string(step) + " where step " + to_string(expected) + " should be");
      break;
    }
    std::uint64_t place = order.position_of({step.value - 1});
    for (const std::uint64_t sample : samples_of_step(order, batch, step)) passes.use(place++, sample, step);
    audit.sequences += static_cast<std::uint64_t>(batch.sequences);
    ++expected.value;
  }
  passes.end();
  return audit;
}

}  // namespace kintsugi
