// Who works which cells after ranks are gone or have come, changing as few pieces of the cut in force as it takes.
#pragma once

#include <vector>

#include "engine/plan/cell_line.hpp"
#include "engine/plan/planner.hpp"

namespace kintsugi {

struct CellRepair {
  CellPieces pieces;
  std::uint32_t changed = 0;    // members with other cells than before, newcomers too
  std::uint32_t taken = 0;      // places of ranks that are gone which a newcomer has taken as they were
  std::uint32_t newcomers = 0;  // others, who relieve whoever is busiest
};

// `in_force`: the cut, `before` its plan. `workers`: who is to work, ascending; ranks <= cells.
// A newcomer takes the place of one that is gone, on its node first. What is left vacant is shared out among the nearest
// neighbours in its stage: as many as it takes for none of them to be busier than the busiest of the others or than any
// cut must make somebody; where that cannot be, and another stage can do better with one member less, one of its members
// takes the place; where nobody is left in the stage, the nearest on the line share it. A newcomer for whom there is
// no place relieves the busiest and as many of its neighbours as helps.
CellRepair repair_cells(const CellLine& line, const CellPieces& in_force, const Plan& before,
                        const std::vector<PlanMember>& workers);

}  // namespace kintsugi
