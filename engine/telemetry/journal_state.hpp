// What a restarted supervisor must know, folded from a journal's entries, and which entries a shorter journal must keep.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/telemetry/journal_entry.hpp"

namespace kintsugi {

// One start of a supervisor that has had this journal.
struct Tenure {
  std::uint32_t epoch = 0;
  Incarnation incarnation;  // when it started, ns since 1970: what it is called on its links
  bool operator==(const Tenure&) const = default;
};

struct RestartJob {  // submitted and not ended
  journaled::Submitted submitted;
  std::optional<journaled::GenerationMade> generation;  // the newest; a member may have promised it
  std::optional<journaled::RecordSeen> record;          // the newest; members may know a newer one
  std::int64_t submitted_ns = 0;                        // since 1970
  std::vector<journaled::IncidentOver> incidents;       // the newest kKeptIncidentsOver, oldest first
  bool operator==(const RestartJob&) const = default;
};

struct RestartState {
  std::uint32_t epoch = 0;      // of the last start; 0: there was none
  std::vector<Tenure> tenures;  // the newest kKeptTenures, oldest first
  NodeId next_node{1};          // never given yet
  JobId next_job{1};
  std::map<NodeId, journaled::NodeJoined> nodes;  // joined and not left
  std::map<JobId, RestartJob> jobs;
  std::vector<journaled::Ended> ended;  // the newest kKeptEndedJobs, oldest first: who followed them may come late
  bool operator==(const RestartState&) const = default;
};

constexpr std::size_t kKeptEndedJobs = 16;
// A node that has missed more lives of its supervisor than this is not known any more.
constexpr std::size_t kKeptTenures = 256;
constexpr std::size_t kKeptIncidentsOver = 1024;  // of a job

// Of the supervisor whose Started entry has this time.
Incarnation incarnation_of(std::int64_t started_ns);

RestartState restart_state(std::span<const JournalEntry> entries);

// What compaction keeps for `explain`; what a restart needs has no bound but the cluster's own.
constexpr std::size_t kKeptIncidents = 64;  // the newest, of all jobs together
constexpr std::size_t kKeptEvents = 4096;   // of them, and of none

// A subsequence with the same restart_state, the newest events and the newest ended jobs.
std::vector<JournalEntry> compacted(std::span<const JournalEntry> entries);

}  // namespace kintsugi
