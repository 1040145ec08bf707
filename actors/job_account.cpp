#include "actors/job_account.hpp"

#include <utility>

namespace kintsugi::actors {

JobAccount::JobAccount(const AdmittedJob& job, const Clock& clock, std::optional<DecisionRecord> last)
    : clock_(clock),
      lineage_(job.lineage),
      tokens_per_step_(static_cast<double>(job.config.batch.tokens_per_step())),
      report_(job, clock.now()),
      phase_began_(clock.now()),
      reported_(job.first),
      last_(std::move(last)) {}

void JobAccount::hear(const DecisionRecord& record, double seconds) {
  if (record.lineage == lineage_ && record.step > reported_) heard_[record.step] = {record, seconds};
}

void JobAccount::hear_late(const DecisionRecord& record) {
  heard_.try_emplace(record.step, Heard{record, 0});
}

std::optional<DecisionRecord> JobAccount::newest_heard() const {
  return heard_.empty() ? std::nullopt : std::optional(heard_.rbegin()->second.record);
}

// Steps whose root's words did not get here in time come in what members say at a fence, or nodes after a restart.
void JobAccount::report(const DecisionRecord& record) {
  hear_late(record);
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
