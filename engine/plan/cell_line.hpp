// The line of cells: stage after stage, lane after lane. Who works which is a cut of the line, one piece a rank: so a rank
// has at most one block of lanes in a stage, and neighbours on the line are neighbours in the pipeline or in its lanes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/plan/plan.hpp"

namespace kintsugi {

struct CellLine {
  std::vector<double> stage_costs;  // FLOPs of a microbatch, forward and backward
  std::uint32_t lanes = 0;

  std::uint32_t cells() const { return static_cast<std::uint32_t>(stage_costs.size()) * lanes; }
  std::uint32_t stage_of(std::uint32_t cell) const { return cell / lanes; }
  // Of the cells [first, end).
  double cost(std::uint32_t first, std::uint32_t end) const;
  // No cut into so many pieces has a cheaper dearest one.
  double least_load(std::uint32_t ranks) const;
};

struct CellPiece {
  RankId rank;
  std::uint32_t first = 0, end = 0;  // cells
  std::uint32_t count() const { return end - first; }
  auto operator<=>(const CellPiece&) const = default;
};
using CellPieces = std::vector<CellPiece>;  // in the order of the line; together all of it

double busiest_load(const CellLine& line, const CellPieces& pieces);

// Every rank of `order` in one stage, ranks going to stages in proportion to their cost, or, where there are fewer, every
// stage in one rank. Ranks <= cells.
CellPieces whole_stages(const CellLine& line, const std::vector<RankId>& order);
// Pieces of near-equal cost wherever that cuts.
CellPieces even_cut(const CellLine& line, const std::vector<RankId>& order);

// By stage, in lane order.
std::vector<std::vector<CellBlock>> blocks_of(const CellLine& line, const CellPieces& pieces);
// Empty: a rank's cells are not one piece.
std::optional<CellPieces> pieces_of(const Plan& plan);

}  // namespace kintsugi
