// What a supervisor writes down of a node and a job, and what a restarted one makes of it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "actors/job_admission.hpp"
#include "engine/control/job_events.hpp"
#include "engine/control/membership.hpp"
#include "engine/telemetry/journal.hpp"

namespace kintsugi::actors {

journaled::NodeJoined joined_entry(NodeId node, const NodeInfo& info);
journaled::Submitted submitted_entry(JobId job, const AdmittedJob& admitted);

// One moment on two clocks: the supervisor's own, and the one that its successor reads as well.
struct Moment {
  Instant now;
  std::int64_t wall_ns = 0;  // since 1970
};
journaled::IncidentOver incident_entry(JobId job, const IncidentReport& incident, const Moment& moment);

// What the report of a job goes on from.
struct ReportedBefore {
  Instant began;
  std::vector<IncidentReport> incidents;
};
ReportedBefore reported_before(const RestartJob& job, const Moment& moment);

struct Inheritance {
  RestartState state;
  std::map<JobId, AdmittedJob> jobs;
  std::map<JobId, Adoption> adoptions;
};
// Without a journal there is none. Error{tell_user}: a job in it is not one of this version.
Result<Inheritance> inherit(const Journal* journal);

// Its former number, if this is the very process that has it.
std::optional<NodeId> former_number(const std::map<NodeId, journaled::NodeJoined>& nodes, NodeId claimed,
                                    Incarnation incarnation);

}  // namespace kintsugi::actors
