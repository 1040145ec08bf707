// What a restarted supervisor must know, folded from a journal's entries, and which entries a shorter journal must keep.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/telemetry/journal_entry.hpp"

namespace kintsugi {

struct RestartJob {  // submitted and not ended
  journaled::Submitted submitted;
  std::optional<journaled::GenerationMade> generation;  // the newest; a member may have promised it
  std::optional<journaled::RecordSeen> record;          // the newest; members may know a newer one
  bool operator==(const RestartJob&) const = default;
};

struct RestartState {
  std::uint32_t epoch = 0;  // of the last start; 0: there was none
  NodeId next_node{1};      // never given yet
  JobId next_job{1};
  std::map<NodeId, journaled::NodeJoined> nodes;  // joined and not left
  std::map<JobId, RestartJob> jobs;
  std::vector<journaled::Ended> ended;  // the newest kKeptEndedJobs, oldest first: who followed them may come late
  bool operator==(const RestartState&) const = default;
};

constexpr std::size_t kKeptEndedJobs = 16;

RestartState restart_state(std::span<const JournalEntry> entries);

// What compaction keeps for `explain`; what a restart needs has no bound but the cluster's own.
constexpr std::size_t kKeptIncidents = 64;  // the newest, of all jobs together
constexpr std::size_t kKeptEvents = 4096;   // of them, and of none

// A subsequence with the same restart_state, the newest events and the newest ended jobs.
std::vector<JournalEntry> compacted(std::span<const JournalEntry> entries);

}  // namespace kintsugi
