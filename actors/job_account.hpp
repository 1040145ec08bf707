// What is told of a job while it runs and at its end: steps as they became final, incidents, lost time. Nothing is decided by
// it, and it outlives an incarnation of the job's supervisor.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "actors/report.hpp"
#include "base/clock.hpp"
#include "engine/control/decision_record.hpp"

namespace kintsugi::actors {

class JobAccount {
 public:
  // `clock` outlives it. `last`: what a former supervisor knew.
  JobAccount(const AdmittedJob& job, const Clock& clock, std::optional<DecisionRecord> last);

  // A member says that the step is final. Of one that is reported nothing; twice is once.
  void hear(const DecisionRecord& record, double seconds);
  // The same, from whoever does not know how long it took.
  void hear_late(const DecisionRecord& record);
  std::optional<DecisionRecord> newest_heard() const;
  // The job's machine takes it, and with it those before that were heard.
  void report(const DecisionRecord& record);

  // Time since the last call, or since a step, has trained nothing: the cause.
  void lose(const std::string& cause);
  void begin_phase() { phase_began_ = clock_.now(); }
  // Until now, when training begins: by this cause the first time, by that later.
  void lose_until_training(const std::string& first, const std::string& later);

  Step reported() const { return reported_; }
  const std::optional<DecisionRecord>& last() const { return last_; }
  double tokens_per_second() const { return tokens_per_second_; }
  Report& about() { return report_; }

 private:
  struct Heard {
    DecisionRecord record;
    double seconds = 0;
  };

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
