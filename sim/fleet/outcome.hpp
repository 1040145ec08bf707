// What came of a run: of the fleet under our policy, or of another policy under the same faults.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/control/job_events.hpp"

namespace kintsugi::sim {

// Seconds in which the fleet as a whole did nothing that lasts.
struct Loss {
  double seconds = 0;
  std::uint64_t events = 0;
};

struct IncidentOutcome {
  IncidentReport machine;  // as the job machine reports it
  std::string cause;       // of the first fault in it
  double struck = 0;       // seconds: that fault
};

struct RanksInService {
  double at = 0;  // seconds
  std::uint64_t ranks = 0;
};

struct Outcome {
  std::string policy;
  std::string assumptions;  // in words, with their figures
  double wall = 0;          // seconds
  double step_seconds = 0;  // of a step at full strength
  double tokens_per_step = 0;
  double steps = 0;  // committed, on the lineage that lives
  std::uint64_t in_job_ranks = 0, provisioned_ranks = 0;
  std::map<std::string, Loss> lost;           // by cause
  std::vector<double> recovery;               // seconds from fault to the first commit after it
  std::uint64_t faults = 0, idle_faults = 0;  // struck; of them, where nothing of the job was
  bool ended = false;                         // the job could not go on
  std::string why_ended;

  double tokens() const { return steps * tokens_per_step; }
  // Of what the ranks that the job asks for would do without a fault.
  double goodput_in_job() const { return wall > 0 ? steps * step_seconds / wall : 0; }
  // Of what all that is provisioned would.
  double goodput() const {
    return goodput_in_job() * static_cast<double>(in_job_ranks) / static_cast<double>(provisioned_ranks);
  }
};

struct FleetOutcome : Outcome {
  std::uint64_t event_hash = 0;     // of every event and every decision of the machine
  std::uint64_t events = 0;         // of the fleet's queue
  std::uint64_t machine_steps = 0;  // events that the job machine took
  std::uint64_t plans = 0;          // that the planner made
  std::uint64_t returns = 0;        // to a durable checkpoint
  double steps_lost = 0;            // by them
  std::uint64_t folded_steps = 0;   // that the machine did not see one by one
  std::vector<IncidentOutcome> incidents;
  std::vector<RanksInService> in_service;
};

}  // namespace kintsugi::sim
