// What is told of a job while it runs and at its end: steps as they became final, incidents, lost time. Nothing is decided by
// it, and it outlives an incarnation of the job's supervisor.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "actors/report.hpp"
#include "actors/restart.hpp"
#include "base/clock.hpp"
#include "engine/control/decision_record.hpp"

namespace kintsugi::actors {

class JobAccount {
 public:
  // `clock` outlives it. `last`: what a former supervisor knew. `before`: the journal's, of a job that it had.
  JobAccount(const AdmittedJob& job, const Clock& clock, std::optional<DecisionRecord> last,
             const std::optional<RestartJob>& before);

  // A member says that the step is final; twice is once. Of a step before the newest that is reported it fills a place in
  // the report; a later one waits until the machine knows that it is final. `seconds`: 0 from whoever does not know.
  void hear(const DecisionRecord& record, double seconds);
  std::optional<DecisionRecord> newest_heard() const;
  // The job's machine takes it, and with it those before that were heard.
  void report(const DecisionRecord& record);

  // Time since the last call, or since a step, has trained nothing: the cause.
  void lose(const std::string& cause);
  void begin_phase() { phase_began_ = clock_.now(); }
  // Until now, when training begins: by this cause the first time, by that later.
  void lose_until_training(const std::string& first, const std::string& later);

  // Members are asked for records after it: of a few steps before the newest they say again what a rank may have decided and
  // not got to say.
  Step known_step() const;
  const std::optional<DecisionRecord>& last() const { return last_; }
  double tokens_per_second() const { return tokens_per_second_; }
  Report& about() { return report_; }

 private:
  struct Heard {
    DecisionRecord record;
    double seconds = 0;
  };

  JobAccount(const AdmittedJob& job, const Clock& clock, std::optional<DecisionRecord> last,
             const ReportedBefore& before);

  const Clock& clock_;
  const Lineage lineage_;
  const double tokens_per_step_;
  Report report_;
  Instant phase_began_;
  std::map<Step, Heard> heard_;  // final, as members say, and not in the report yet
  Step reported_;
  std::optional<DecisionRecord> last_;
  double tokens_per_second_ = 0;
  bool trained_ = false;
};

}  // namespace kintsugi::actors
