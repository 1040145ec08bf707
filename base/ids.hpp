// Strong types for everything that could be swapped by mistake (DESIGN section 2, the words).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace kintsugi {

template <class Tag, class Rep = std::uint32_t>
struct StrongId {
  using rep = Rep;
  Rep value = 0;
  constexpr auto operator<=>(const StrongId&) const = default;
};

using RankId = StrongId<struct RankTag>;    // a rank of a job, given by its supervisor, never reused
using NodeId = StrongId<struct NodeTag>;    // given by the supervisor, never reused
using StageId = StrongId<struct StageTag>;  // a contiguous run of layers
using LaneId = StrongId<struct LaneTag>;    // a logical data-parallel replica
using LayerId = StrongId<struct LayerTag>;  // embedding = 0, blocks = 1..N, head = N + 1
using GroupId = StrongId<struct GroupTag>;  // a run of parameters of one layer with the same uses
using ShardId = StrongId<struct ShardTag>;  // a fixed slice of one group: the unit of state
using JobId = StrongId<struct JobTag>;
using Step = StrongId<struct StepTag, std::uint64_t>;                // number of steps that became final
using Lineage = StrongId<struct LineageTag, std::uint64_t>;          // unbroken line of committed steps
using Incarnation = StrongId<struct IncarnationTag, std::uint64_t>;  // tells a restarted process from its former self

// The number of the plan in force. A restarted supervisor takes a new epoch, so the epoch orders first.
struct Generation {
  std::uint32_t epoch = 0;
  std::uint32_t counter = 0;
  constexpr auto operator<=>(const Generation&) const = default;
};

template <class Tag, class Rep>
std::string to_string(StrongId<Tag, Rep> id) {
  return std::to_string(id.value);
}
inline std::string to_string(Generation g) {
  return std::to_string(g.epoch) + "." + std::to_string(g.counter);
}

}  // namespace kintsugi

template <class Tag, class Rep>
struct std::hash<kintsugi::StrongId<Tag, Rep>> {
  std::size_t operator()(kintsugi::StrongId<Tag, Rep> id) const { return std::hash<Rep>{}(id.value); }
};
