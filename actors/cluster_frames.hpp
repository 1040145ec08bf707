// What the cluster supervisor hears and says itself, decoded and encoded.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "actors/control_message.hpp"
#include "actors/job_admission.hpp"
#include "engine/control/membership.hpp"
#include "engine/control/takeover.hpp"
#include "engine/telemetry/journal_entry.hpp"

namespace kintsugi::actors {

struct Arrival {  // schemas::NodeHello
  NodeInfo info;
  NodeId former;         // its number under a supervisor that was lost; 0: none
  std::set<JobId> jobs;  // that it has run since
  NodeClaim claim;       // whom it served last, and what it keeps of the journal
};
Arrival read_hello(schemas::NodeHello::Reader in);

Submission read_submission(schemas::Submit::Reader in);

// Of a message from a node that is for the supervisor of a job; none: no node sends it.
std::optional<JobId> job_of(schemas::Message::Reader m);

transport::Frame refusal(const Error& why);
transport::Frame acceptance(JobId job);
// Of a job that ended under a former supervisor, whose report is lost.
transport::Frame past_end(const journaled::Ended& end);
transport::Frame stop_frame(JobId job, const std::string& why);

}  // namespace kintsugi::actors
