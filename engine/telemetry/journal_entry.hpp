// What a supervisor writes down (schemas/journal.capnp): promises that a restarted one must keep, and the events from which
// `explain` tells what happened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"

namespace kintsugi {

namespace journaled {

struct Started {  // a supervisor took the journal
  std::uint32_t epoch = 0;
  std::uint64_t cluster_id = 0;
  std::string host;
  std::uint32_t pid = 0;
  std::string version;
  bool operator==(const Started&) const = default;
};

struct NodeJoined {
  NodeId node;
  std::string host;
  Incarnation incarnation;
  std::uint32_t slots = 0;
  std::uint32_t cores = 0;
  std::uint64_t memory_bytes = 0;
  std::vector<std::string> labels;  // "rack=r1"
  std::string kernel_variant;
  std::string version;
  std::uint32_t pid = 0;
  bool operator==(const NodeJoined&) const = default;
};

struct NodeLeft {
  NodeId node;
  std::string why;
  bool operator==(const NodeLeft&) const = default;
};

struct Submitted {
  JobId job;
  Lineage lineage;
  std::string job_file;     // canonical YAML, paths absolute
  std::string source;       // its path, for messages
  std::uint32_t ranks = 0;  // 0: as many as there are slots
  std::uint32_t nodes = 0;
  std::uint32_t threads = 0;
  std::string save_directory;
  std::string resume_directory;
  bool ucx_only = false;
  Step first_step;            // of the state it begins with
  std::uint64_t updates = 0;  // t there
  bool operator==(const Submitted&) const = default;
};

struct Ended {
  JobId job;
  std::uint8_t exit_code = 0;
  std::string message;
  bool operator==(const Ended&) const = default;
};

struct GenerationMade {  // to be durable before its fence is first sent, and before ranks are first started
  JobId job;
  Lineage lineage;
  Generation generation;
  RankId next_rank;  // no rank of the job ever had this number or a higher one
  std::string why;
  std::uint32_t incidents = 0;  // opened in the job so far
  bool paused = false;          // or to be
  bool operator==(const GenerationMade&) const = default;
};

enum class EventKind : std::uint8_t {
  evidence,
  suspicion,
  fence,
  report,
  plan,
  prepare,
  resume,
  first_commit,
  incident_over,
  note,
};
constexpr std::uint8_t kEventKinds = 10;
const char* to_string(EventKind kind);

struct Event {
  JobId job;
  Generation generation;
  std::uint32_t incident = 0;  // from 1, within the job; 0: of none
  EventKind kind = EventKind::note;
  std::string by;       // who observed or decided
  std::string subject;  // "rank 2 on node 1 (a)"
  std::string text;
  std::uint64_t bytes_moved = 0;
  std::uint64_t lanes_recomputed = 0;
  std::uint64_t steps_lost = 0;
  Step step;
  bool operator==(const Event&) const = default;
};

struct IncidentOver {  // what a report says of it; times since 1970, ns
  JobId job;
  std::uint32_t id = 0;  // from 1, within the job
  std::string kind, target, why;
  Generation generation;  // that it ended in
  std::uint32_t restarts = 0;
  std::int64_t detected_ns = 0;
  std::int64_t fenced_ns = 0, resumed_ns = 0, first_commit_ns = 0;  // 0: it never came to that
  std::uint64_t lanes_recomputed = 0;
  std::uint64_t bytes_moved = 0;
  std::uint64_t steps_lost = 0;
  bool operator==(const IncidentOver&) const = default;
};

struct RecordSeen {  // committed state of the job is at `step` or later
  JobId job;
  Step step;
  std::vector<std::byte> message;  // encode_record() of engine/control: this layer does not look inside
  bool operator==(const RecordSeen&) const = default;
};

}  // namespace journaled

struct JournalEntry {
  std::int64_t wall_ns = 0;  // since 1970, for people
  std::variant<journaled::Started, journaled::NodeJoined, journaled::NodeLeft, journaled::Submitted, journaled::Ended,
               journaled::GenerationMade, journaled::Event, journaled::RecordSeen, journaled::IncidentOver>
      what;
  bool operator==(const JournalEntry&) const = default;
};

std::vector<std::byte> encode_entry(const JournalEntry& entry);
// Error{fail_link} as of every decoder. An entry of a kind this version does not know is an error, too: to restart without
// it could break a promise.
Result<JournalEntry> decode_entry(std::span<const std::byte> bytes);

}  // namespace kintsugi
