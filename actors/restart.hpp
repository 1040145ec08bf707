// What a supervisor writes down of a node and a job, and what a restarted one makes of it.
#pragma once

#include <map>
#include <string>

#include "actors/job_admission.hpp"
#include "engine/control/job_events.hpp"
#include "engine/control/membership.hpp"
#include "engine/telemetry/journal.hpp"

namespace kintsugi::actors {

journaled::NodeJoined joined_entry(NodeId node, const NodeInfo& info);
journaled::Submitted submitted_entry(JobId job, const AdmittedJob& admitted);

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
