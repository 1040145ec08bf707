#include "actors/job_held.hpp"

namespace kintsugi::actors {

std::optional<Adoption> HeldJobSupervisor::what_is_known() const {
  std::optional<Adoption> known = parts.adoption;
  if (const auto& made = memo.generation) {
    if (!known) known.emplace();
    known->promised = made->generation;
    known->next_rank = made->next_rank.value;
    known->incidents = made->incidents;
    known->paused = made->paused;
  }
  if (!known) return std::nullopt;
  known->first = parts.admitted.first;
  known->record = account.last();
  for (const auto& [node, offered] : nodes) known->nodes[node] = offered.name;
  return known;
}

}  // namespace kintsugi::actors
