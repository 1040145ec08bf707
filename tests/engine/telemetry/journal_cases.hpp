// Entries for the tests of the journal.
#pragma once

#include <string>
#include <vector>

#include "base/philox.hpp"
#include "engine/telemetry/journal_entry.hpp"

namespace kintsugi::journal_cases {

using namespace journaled;

// One of each kind, every field set to something of its own.
inline std::vector<JournalEntry> one_of_each() {
  return {
      {1, Started{3, 0xfeed, "host-a", 41, "0.1"}},
      {2, NodeJoined{{7}, "host-b", {99}, 4, 16, 1ull << 40, {"rack=r1", ""}, "cpu-avx2", "0.1", 42}},
      {3, NodeLeft{{7}, "its link was reset"}},
      {4, Submitted{{2}, {5}, "model: tiny\n", "job.yaml", 8, 2, 3, "/save", "/resume", true, {100}, 98}},
      {5, Ended{{2}, 130, "it was cancelled"}},
      {6, GenerationMade{{2}, {5}, {3, 9}, {11}, "rank 2 was killed by signal 9", 6, true}},
      {-7, Event{{2}, {3, 9}, 6, EventKind::first_commit, "supervisor", "rank 2", "goes on", 10, 11, 12, {13}}},
      {8, RecordSeen{{2}, {103}, {std::byte{0}, std::byte{255}, std::byte{7}}}},
      {9, IncidentOver{{2}, 6, "rank lost", "rank 2", "was killed", {3, 9}, 1, 11, 12, 13, 14, 15, 16, 17}},
  };
}

inline JournalEntry note(const std::string& text) {
  return {0, Event{.job = {1}, .text = text}};
}

// The n-th of a random sequence over few nodes and jobs, so that they meet in every order; events over `incidents`.
inline JournalEntry random_entry(std::uint64_t seed, std::uint64_t n, std::uint32_t incidents = 5) {
  auto below = [&, draw = 0ull](std::uint32_t limit) mutable {
    return static_cast<std::uint32_t>(philox_u64(philox_key(seed), n, draw++) % limit);
  };
  const auto wall = static_cast<std::int64_t>(n);
  const auto number = static_cast<std::uint32_t>(n);
  const std::string tag = std::to_string(n);
  switch (below(9)) {
    case 0: return {wall, Started{.epoch = 1 + number, .host = tag}};
    case 1: return {wall, NodeJoined{.node = {1 + below(40)}, .host = tag}};
    case 2: return {wall, NodeLeft{{1 + below(40)}, tag}};
    case 3: return {wall, Submitted{.job = {1 + below(60)}, .source = tag}};
    case 4: return {wall, Ended{{1 + below(60)}, 0, tag}};
    case 5: return {wall, GenerationMade{.job = {1 + below(60)}, .generation = {1, number}, .next_rank = {number}}};
    case 6: return {wall, RecordSeen{{1 + below(60)}, {n}, {}}};
    case 7: return {wall, IncidentOver{.job = {1 + below(60)}, .id = number, .target = tag}};
    default: return {wall, Event{.job = {1 + below(60)}, .incident = below(incidents), .text = tag}};
  }
}

}  // namespace kintsugi::journal_cases
