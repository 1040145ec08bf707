// What happened in an incident, line by line, from a supervisor's journal: what `kintsugi explain` prints (promise C8).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/telemetry/journal_entry.hpp"

namespace kintsugi {

struct TimelineLine {
  std::int64_t wall_ns = 0;  // since 1970
  journaled::Event event;
};

// From a rank's answer to the fence until training went on.
struct Idle {
  std::string who;
  std::int64_t ns = 0;
};

struct IncidentTimeline {
  JobId job;
  std::uint32_t incident = 0;       // within the job
  std::vector<TimelineLine> lines;  // as they were written down; never empty
  std::vector<Idle> idle;           // of the last generation change in it, by name; empty: it was not resumed
  bool over = false;                // its first step is final, or the job ended in it

  // The line that ends it, else the first: whom it struck and why, as far as that is known.
  const journaled::Event& verdict() const;
};

// Every incident of `entries`, oldest first. A journal that was compacted may have lost the first lines of the oldest.
std::vector<IncidentTimeline> incident_timelines(std::span<const JournalEntry> entries);

// For people: a heading, one line an event with seconds since the first, and the sums.
std::string to_text(const IncidentTimeline& incident);
std::string to_json(const IncidentTimeline& incident);

}  // namespace kintsugi
