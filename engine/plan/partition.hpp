// A line of items cut into contiguous pieces whose dearest is as cheap as can be.
#pragma once

#include <cstdint>
#include <vector>

namespace kintsugi {

// The contiguous partition of `costs` into `parts` non-empty pieces with the least maximum. Of several, the one whose
// first piece ends first, the rest being balanced by the same rule: what follows a dear piece is not left uneven because
// of it. Returns the piece ends. Costs are not negative; 0 < parts <= costs.size(). Near linear where few different piece
// costs occur, as in a line of cells.
std::vector<std::uint32_t> balanced_partition(const std::vector<double>& costs, std::uint32_t parts);

}  // namespace kintsugi
