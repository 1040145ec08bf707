// What the supervisor of a job writes down beside its promises: the newest record now and then, and the events of which
// `explain` makes a timeline.
#pragma once

#include <string>

#include "actors/journal_writer.hpp"
#include "base/clock.hpp"
#include "engine/control/job_machine.hpp"

namespace kintsugi::actors {

// The newest record is written down at most so often: a restarted supervisor hears newer ones from its nodes.
constexpr Duration kRecordInterval = seconds(1);

// What a next incarnation of the job's supervisor must know of what is written, or under way to be.
struct JobMemo {
  std::optional<journaled::GenerationMade> generation;  // the newest
  std::optional<journaled::Ended> ended;

  void note(const decltype(JournalEntry::what)& what);
};

// Owned by one incarnation of an actor; `memo` outlives it.
class JobJournal {
 public:
  JobJournal(const JobMachine& machine, caf::actor writer, JobMemo& memo)
      : machine_(machine), writer_(std::move(writer)), memo_(memo) {}

  // What is to be promised before members are told of `machine`'s generation or of ranks with new numbers.
  journaled::GenerationMade generation(const std::string& why) const;

  void record(const DecisionRecord& record, bool last, Instant now);
  // For the report of a successor.
  void incident(const IncidentReport& incident, Instant now);
  // What was seen, after the machine has taken it and did not drop it.
  void evidence(const JobEvent& event);
  // The machine decided it.
  void decided(const JobEffect& effect);

 private:
  void answered(const job_event::RankReported& e);
  void write(decltype(JournalEntry::what) what);
  // Job, generation and incident are the machine's.
  void tell(journaled::Event event);

  const JobMachine& machine_;
  caf::actor writer_;
  JobMemo& memo_;
  Instant recorded_{INT64_MIN / 2};
};

}  // namespace kintsugi::actors
