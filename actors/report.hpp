// What a run reports (CLI.md, `--report`), collected while it goes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/job_admission.hpp"
#include "base/clock.hpp"
#include "engine/control/job_machine.hpp"
#include "engine/plan/plan.hpp"
#include "schemas/control.capnp.h"

namespace kintsugi::actors {

// schemas::RankAccount, decoded.
struct RankAccount {
  struct Traffic {
    std::uint64_t sent = 0, received = 0;  // bytes
  };
  RankId rank;
  std::uint64_t cells = 0, microbatches = 0, forward_again = 0, backward_again = 0;
  double flops = 0;
  std::uint64_t bytes_sent = 0, bytes_received = 0;
  std::map<RankId, Traffic> traffic;
  std::uint64_t peak_memory_bytes = 0, parameter_bytes = 0, state_bytes = 0, replica_bytes = 0;
  double compute_seconds = 0, wait_seconds = 0;
  double peak_flops = 0;  // float32 multiply-add peak, a second; 0: not measured
  Digest final_digest;
};
RankAccount read_account(schemas::RankAccount::Reader in);

// A day of steps of a second. Past this the oldest are left out, and the report says how many, so that it fits one
// frame.
constexpr std::size_t kReportedSteps = 40'000;

class Report {
 public:
  // `began`: what the instants of incidents count from.
  Report(AdmittedJob job, Instant began) : job_(std::move(job)), began_(began), whole_(job_.first) {}

  void planned(Plan plan, std::string kernel_variant);
  // `now`: when it became known here. In any order, twice is once: what was heard late fills its place. `seconds`: 0 where
  // nobody measured.
  void step_final(const DecisionRecord& record, double seconds, Instant now);
  void rank_finished(RankAccount account) { accounts_[account.rank] = std::move(account); }
  void incident(const IncidentReport& incident) { incidents_.push_back(incident); }
  // Time that trained nothing, by cause ("startup", "save", "stop"), seconds; adds up.
  void lost(const std::string& cause, double seconds) { lost_[cause] += seconds; }

  bool has_steps() const { return !steps_.empty(); }
  // Every step up to this one is here, from the job's first on.
  Step whole() const { return whole_; }
  // Up to which steps are missing after whole(); none: it has all up to its newest.
  std::optional<Step> gap() const;
  std::string json(const std::string& version) const;

 private:
  struct StepLine {
    float loss = 0, gradient_norm = 0, learning_rate = 0;
    bool committed = true;
    Digest previous_digest;  // of the state before it
    Generation generation;
    std::uint32_t ranks = 0;
    std::uint32_t failure_domains = 1;
    double seconds = 0;
    Instant final_at;
  };

  AdmittedJob job_;
  Instant began_;
  std::optional<Plan> plan_;
  std::string kernel_variant_;
  std::map<Step, StepLine> steps_;
  Step whole_;
  std::uint64_t left_out_ = 0;
  std::uint64_t count_ = 0;
  double productive_seconds_ = 0;
  std::map<std::string, double> lost_;
  std::map<RankId, RankAccount> accounts_;
  std::vector<IncidentReport> incidents_;
};

}  // namespace kintsugi::actors
