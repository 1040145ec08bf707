#include "engine/plan/cell_line.hpp"

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>

#include "base/assert.hpp"
#include "base/units.hpp"
#include "engine/plan/partition.hpp"

namespace kintsugi {

double CellLine::cost(std::uint32_t first, std::uint32_t end) const {
  double sum = 0;
  for (std::uint32_t s = first / lanes; s * lanes < end; ++s) {
    sum += stage_costs[s] * (std::min(end, (s + 1) * lanes) - std::max(first, s * lanes));
  }
  return sum;
}

double CellLine::least_load(std::uint32_t ranks) const {
  const auto [cheapest, dearest] = std::minmax_element(stage_costs.begin(), stage_costs.end());
  const double mean = std::accumulate(stage_costs.begin(), stage_costs.end(), 0.0) * lanes / ranks;
  return std::max({mean, *dearest, *cheapest * ceil_div(cells(), ranks)});
}

double busiest_load(const CellLine& line, const CellPieces& pieces) {
  double most = 0;
  for (const CellPiece& piece : pieces) most = std::max(most, line.cost(piece.first, piece.end));
  return most;
}

namespace {

// `ends`: of the pieces, by place in `order`.
CellPieces pieces_up_to(const std::vector<std::uint32_t>& ends, const std::vector<RankId>& order) {
  CellPieces pieces;
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    pieces.push_back({order[i], first, ends[i]});
    first = ends[i];
  }
  return pieces;
}

// How many ranks each stage gets: one after the other to whichever is worst off, the lowest stage first.
std::vector<std::uint32_t> ranks_of_stages(const CellLine& line, std::uint32_t ranks) {
  const auto stages = static_cast<std::uint32_t>(line.stage_costs.size());
  std::vector<std::uint32_t> members(stages, 1);
  using Need = std::pair<double, std::uint32_t>;  // load of a rank, stage
  const auto less_needy = [](const Need& a, const Need& b) {
    return a.first < b.first || (a.first == b.first && a.second > b.second);
  };
  std::priority_queue<Need, std::vector<Need>, decltype(less_needy)> needs(less_needy);
  const auto add = [&](std::uint32_t s) {
    if (members[s] == line.lanes) return;
    needs.emplace(line.stage_costs[s] * static_cast<double>(ceil_div(line.lanes, members[s])), s);
  };
  for (std::uint32_t s = 0; s < stages; ++s) add(s);
  for (std::uint32_t spare = ranks - stages; spare > 0; --spare) {
    const std::uint32_t neediest = needs.top().second;
    needs.pop();
    ++members[neediest];
    add(neediest);
  }
  return members;
}

}  // namespace

CellPieces whole_stages(const CellLine& line, const std::vector<RankId>& order) {
  const auto ranks = static_cast<std::uint32_t>(order.size());
  std::vector<std::uint32_t> ends;
  if (ranks < line.stage_costs.size()) {
    for (const std::uint32_t end : balanced_partition(line.stage_costs, ranks)) ends.push_back(end * line.lanes);
    return pieces_up_to(ends, order);
  }
  std::uint32_t end = 0;
  for (const std::uint32_t members : ranks_of_stages(line, ranks)) {
    for (std::uint32_t r = 0; r < members; ++r) {
      ends.push_back(end += line.lanes / members + (r < line.lanes % members ? 1 : 0));
    }
  }
  return pieces_up_to(ends, order);
}

CellPieces even_cut(const CellLine& line, const std::vector<RankId>& order) {
  std::vector<double> costs;
  for (const double cost : line.stage_costs) costs.insert(costs.end(), line.lanes, cost);
  return pieces_up_to(balanced_partition(costs, static_cast<std::uint32_t>(order.size())), order);
}

std::vector<std::vector<CellBlock>> blocks_of(const CellLine& line, const CellPieces& pieces) {
  std::vector<std::vector<CellBlock>> blocks(line.stage_costs.size());
  for (const CellPiece& piece : pieces) {
    for (std::uint32_t s = line.stage_of(piece.first); s * line.lanes < piece.end; ++s) {
      const std::uint32_t from = std::max(piece.first, s * line.lanes) - s * line.lanes;
      const std::uint32_t to = std::min(piece.end, (s + 1) * line.lanes) - s * line.lanes;
      blocks[s].push_back({piece.rank, {from, to}});
    }
  }
  return blocks;
}

std::optional<CellPieces> pieces_of(const Plan& plan) {
  CellPieces pieces;
  std::vector<bool> is_known(plan.ranks.empty() ? 0 : plan.ranks.back().rank.value + 1, false);  // by rank
  for (std::uint32_t s = 0; s < plan.stages.size(); ++s) {
    for (const CellBlock& block : plan.stages[s].blocks) {
      const std::uint32_t end = s * plan.lanes + block.lanes.end;
      if (!pieces.empty() && pieces.back().rank == block.rank) {
        pieces.back().end = end;
        continue;
      }
      pieces.push_back({block.rank, s * plan.lanes + block.lanes.first, end});
      if (block.rank.value >= is_known.size()) is_known.resize(block.rank.value + 1, false);
      if (is_known[block.rank.value]) return std::nullopt;
      is_known[block.rank.value] = true;
    }
  }
  return pieces;
}

}  // namespace kintsugi
