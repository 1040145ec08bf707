#include "actors/job_account.hpp"

#include <algorithm>
#include <utility>

namespace kintsugi::actors {

namespace {

ReportedBefore before_now(const std::optional<RestartJob>& job, Instant now) {
  return job ? reported_before(*job, {now, wall_clock_ns()}) : ReportedBefore{now, {}};
}

}  // namespace

JobAccount::JobAccount(const AdmittedJob& job, const Clock& clock, std::optional<DecisionRecord> last,
                       const std::optional<RestartJob>& before)
    : JobAccount(job, clock, std::move(last), before_now(before, clock.now())) {}

JobAccount::JobAccount(const AdmittedJob& job, const Clock& clock, std::optional<DecisionRecord> last,
                       const ReportedBefore& before)
    : clock_(clock),
      lineage_(job.lineage),
      tokens_per_step_(static_cast<double>(job.config.batch.tokens_per_step())),
      report_(job, before.began),
      phase_began_(clock.now()),
      reported_(job.first),
      last_(std::move(last)) {
  for (const IncidentReport& incident : before.incidents) report_.incident(incident);
}

void JobAccount::hear(const DecisionRecord& record, double seconds) {
  if (record.lineage != lineage_) return;
  if (record.step <= reported_) return report_.step_final(record, seconds, clock_.now());
  const auto [at, fresh] = heard_.try_emplace(record.step, Heard{record, seconds});
  if (!fresh && (record.generation > at->second.record.generation || at->second.seconds == 0)) {
    at->second = {record, seconds};
  }
}

Step JobAccount::known_step() const {
  constexpr std::uint64_t kSaidAgain = 64;
  return std::max(report_.whole(), Step{reported_.value - std::min(reported_.value, kSaidAgain)});
}

std::optional<DecisionRecord> JobAccount::newest_heard() const {
  return heard_.empty() ? std::nullopt : std::optional(heard_.rbegin()->second.record);
}

// Steps whose root's words did not get here in time come in what members say at a fence, or nodes after a restart.
void JobAccount::report(const DecisionRecord& record) {
  heard_.try_emplace(record.step, Heard{record, 0});
  double seconds = 0;
  for (auto at = heard_.begin(); at != heard_.end() && at->first <= record.step; at = heard_.erase(at)) {
    if (at->first <= reported_) continue;
    seconds = at->second.seconds;
    report_.step_final(at->second.record, seconds, clock_.now());
  }
  reported_ = record.step;
  last_ = record;
  begin_phase();
  tokens_per_second_ = seconds > 0 ? tokens_per_step_ / seconds : 0;
}

void JobAccount::lose(const std::string& cause) {
  const Instant now = clock_.now();
  report_.lost(cause, (now - phase_began_).seconds());
  phase_began_ = now;
}

void JobAccount::lose_until_training(const std::string& first, const std::string& later) {
  lose(trained_ ? later : first);
  trained_ = true;
}

}  // namespace kintsugi::actors
