#include "engine/plan/cell_repair.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "base/assert.hpp"
#include "base/units.hpp"
#include "engine/plan/partition.hpp"
#include "engine/plan/planner.hpp"
#include "engine/plan/rank_index.hpp"

namespace kintsugi {

namespace {

// Rounding of sums of costs is no load.
constexpr double kRounding = 1 + 1e-9;
// Beyond so many a cut across stages is made anew.
constexpr std::uint32_t kMostAcross = 8;

// A piece and whether its rank works on.
struct Place {
  CellPiece piece;
  bool is_vacant = false;
  CellPiece before;  // in force; no cells: of a newcomer
};

// Neighbouring places [first, end) whose cells are dealt out again among those of them that are not vacant.
struct Window {
  std::size_t first = 0, end = 0;
  std::uint32_t members = 0;
};

class Repairer {
 public:
  Repairer(const CellLine& line, const CellPieces& in_force, const Plan& before, const std::vector<PlanMember>& workers)
      : line_(line), before_(before), workers_(workers) {
    std::vector<bool> works(workers.size(), false);
    for (const CellPiece& piece : in_force) {
      const auto worker = place_of(piece.rank, workers, [](const PlanMember& m) { return m.rank; });
      if (worker) works[*worker] = true;
      places_.push_back({piece, !worker, piece});
    }
    for (std::size_t w = 0; w < workers.size(); ++w) {
      if (!works[w]) newcomers_.push_back(workers[w]);
    }
  }

  CellRepair run() {
    seat_newcomers();
    const double least = line_.least_load(static_cast<std::uint32_t>(workers_.size()));
    double busiest = least;
    for (const Place& p : places_) {
      if (!p.is_vacant) busiest = std::max(busiest, load(p.piece));
    }
    split_vacancies();
    for (std::size_t at = 0; at < places_.size(); ++at) {
      if (places_[at].is_vacant && places_[at].piece.count() > 0) busiest = std::max(busiest, fill(at, busiest));
    }
    std::erase_if(places_, [](const Place& p) { return p.is_vacant; });
    if (!newcomers_.empty()) relieve(least);
    for (const Place& p : places_) {
      repair_.pieces.push_back(p.piece);
      if (p.piece != p.before) ++repair_.changed;
    }
    return std::move(repair_);
  }

 private:
  double load(const CellPiece& piece) const { return line_.cost(piece.first, piece.end); }
  bool is_in_stage(const CellPiece& piece, std::uint32_t stage) const {
    return piece.count() > 0 && line_.stage_of(piece.first) == stage && line_.stage_of(piece.end - 1) == stage;
  }

  // In places that are vacant: on the same node first, then as they come.
  void seat_newcomers() {
    for (const bool same_node : {true, false}) {
      if (newcomers_.empty()) return;
      for (Place& p : places_) {
        if (!p.is_vacant) continue;
        const NodeId node = before_.node_of(p.piece.rank);
        const auto who = std::find_if(newcomers_.begin(), newcomers_.end(),
                                      [&](const PlanMember& m) { return !same_node || m.node == node; });
        if (who == newcomers_.end()) continue;
        p = {{who->rank, p.piece.first, p.piece.end}, false, {}};
        newcomers_.erase(who);
        ++repair_.taken;
      }
    }
  }

  // Into vacancies each of one stage.
  void split_vacancies() {
    std::vector<Place> places;
    for (const Place& p : places_) {
      std::uint32_t first = p.piece.first;
      while (p.is_vacant && line_.stage_of(first) != line_.stage_of(p.piece.end - 1)) {
        const std::uint32_t end = (line_.stage_of(first) + 1) * line_.lanes;
        places.push_back({{p.piece.rank, first, end}, true, {}});
        first = end;
      }
      places.push_back({{p.piece.rank, first, p.piece.end}, p.is_vacant, p.before});
    }
    places_ = std::move(places);
  }

  // The nearest place beside the window that is not vacant, and belongs to `stage` alone if one is given; vacancies on the
  // way to it join the window. Empty: there is none.
  std::optional<std::size_t> neighbour(const Window& window, bool left, std::optional<std::uint32_t> stage) const {
    std::size_t at = left ? window.first : window.end;
    while (left ? at > 0 : at < places_.size()) {
      if (left) --at;
      const Place& p = places_[at];
      if (stage && p.piece.count() > 0 && !is_in_stage(p.piece, *stage)) return std::nullopt;
      if (!p.is_vacant) return at;
      if (!left) ++at;
    }
    return std::nullopt;
  }

  static Window with(Window window, std::size_t place) {
    return {std::min(window.first, place), std::max(window.end, place + 1), window.members + 1};
  }
  std::uint32_t first_cell(const Window& w) const { return places_[w.first].piece.first; }
  std::uint32_t end_cell(const Window& w) const { return places_[w.end - 1].piece.end; }

  std::vector<std::uint32_t> cut(const Window& w) const {
    std::vector<double> costs;
    for (std::uint32_t c = first_cell(w); c < end_cell(w); ++c) costs.push_back(line_.cost(c, c + 1));
    std::vector<std::uint32_t> ends = balanced_partition(costs, w.members);
    for (std::uint32_t& end : ends) end += first_cell(w);
    return ends;
  }
  // Near-equal numbers of cells.
  std::vector<std::uint32_t> cut_lanes(const Window& w) const {
    const std::uint32_t count = end_cell(w) - first_cell(w);
    std::vector<std::uint32_t> ends;
    std::uint32_t end = first_cell(w);
    for (std::uint32_t m = 0; m < w.members; ++m) {
      ends.push_back(end += count / w.members + (m < count % w.members ? 1 : 0));
    }
    return ends;
  }

  double deal_out(const Window& w, const std::vector<std::uint32_t>& ends) {
    double most = 0;
    std::uint32_t cell = first_cell(w);
    std::size_t next = 0;
    for (std::size_t at = w.first; at < w.end; ++at) {
      CellPiece& piece = places_[at].piece;
      const std::uint32_t end = places_[at].is_vacant ? cell : ends[next++];
      piece = {piece.rank, cell, end};
      cell = end;
      most = std::max(most, load(piece));
    }
    return most;
  }

  // The dearest share of the window's cells when they are lanes of one stage.
  double share(const Window& w, std::uint32_t stage) const {
    return line_.stage_costs[stage] * ceil_div(end_cell(w) - first_cell(w), w.members);
  }

  // `of_donor`: given up for another vacancy.
  double fill(std::size_t vacancy, double busiest, bool of_donor = false) {
    const std::uint32_t stage = line_.stage_of(places_[vacancy].piece.first);
    Window window{vacancy, vacancy + 1, 0};
    std::optional<Window> best;
    for (;;) {
      const auto left = neighbour(window, true, stage), right = neighbour(window, false, stage);
      if (!left && !right) break;
      const bool go_left = left && (!right || places_[*left].piece.count() <= places_[*right].piece.count());
      window = with(window, go_left ? *left : *right);
      if (!best || share(window, stage) < share(*best, stage)) best = window;
      if (share(window, stage) <= busiest * kRounding) break;
    }
    if (!best) return fill_across({vacancy, vacancy + 1, 0}, busiest);
    if (!of_donor && share(*best, stage) > busiest * kRounding) {
      if (const auto donor = find_donor(vacancy, share(*best, stage) / kWorthSharing)) {
        CellPiece& given_up = places_[*donor].piece;
        places_[vacancy] = {{given_up.rank, places_[vacancy].piece.first, places_[vacancy].piece.end}, false, {}};
        places_[*donor].is_vacant = true;
        const double most = load(places_[vacancy].piece);
        return std::max(most, fill(*donor, std::max(most, busiest), true));
      }
    }
    return deal_out(*best, cut_lanes(*best));
  }

  // Of the stage that can best do with one member less: who works least in it. Empty: it would cost more than `limit`, too.
  std::optional<std::size_t> find_donor(std::size_t vacancy, double limit) const {
    std::vector<std::uint32_t> members(line_.stage_costs.size(), 0), lanes(members);
    for (const Place& p : places_) {
      const std::uint32_t stage = line_.stage_of(p.piece.first);
      if (!is_in_stage(p.piece, stage)) continue;
      members[stage] += p.is_vacant ? 0 : 1;
      lanes[stage] += p.piece.count();
    }
    std::optional<std::uint32_t> best;
    double least = limit;
    for (std::uint32_t s = 0; s < members.size(); ++s) {
      if (members[s] < 2) continue;
      const double most = line_.stage_costs[s] * ceil_div(lanes[s], members[s] - 1);
      if (most >= least) continue;
      best = s;
      least = most;
    }
    if (!best || load(places_[vacancy].piece) >= limit) return std::nullopt;
    std::optional<std::size_t> donor;
    for (std::size_t at = 0; at < places_.size(); ++at) {
      const Place& p = places_[at];
      if (p.is_vacant || !is_in_stage(p.piece, *best)) continue;
      if (!donor || p.piece.count() < places_[*donor].piece.count()) donor = at;
    }
    return donor;
  }

  // Nobody is left in the stage.
  double fill_across(Window window, double busiest) {
    std::optional<Window> best;
    double least = 0;
    while (window.members < kMostAcross) {
      const Window before = window;
      for (const bool left : {true, false}) {
        if (const auto place = neighbour(window, left, std::nullopt)) window = with(window, *place);
      }
      if (window.members == before.members) break;
      const double most = dearest(window, cut(window));
      if (!best || most < least) {
        best = window;
        least = most;
      }
      if (least <= busiest * kRounding) break;
    }
    KINTSUGI_ASSERT_MSG(best.has_value(), "a plan for nobody");
    return deal_out(*best, cut(*best));
  }

  double dearest(const Window& w, const std::vector<std::uint32_t>& ends) const {
    double most = 0;
    std::uint32_t first = first_cell(w);
    for (const std::uint32_t end : ends) {
      most = std::max(most, line_.cost(first, end));
      first = end;
    }
    return most;
  }

  using Loads = std::map<double, std::uint32_t>;  // how many have it: most have one of few
  static void take_out(Loads& loads, double load) {
    const auto at = loads.find(load);
    if (--at->second == 0) loads.erase(at);
  }

  // Every newcomer beside the busiest that has something to give.
  void relieve(double least) {
    Loads loads;
    for (const Place& p : places_) ++loads[load(p.piece)];
    for (const PlanMember& newcomer : newcomers_) {
      const auto relief = [&](const Place& p) { return p.piece.count() > 1 ? load(p.piece) : 0; };
      const auto busiest = std::max_element(places_.begin(), places_.end(),
                                            [&](const Place& a, const Place& b) { return relief(a) < relief(b); });
      const auto at = static_cast<std::size_t>(busiest - places_.begin());
      const CellPiece piece = busiest->piece;
      places_.insert(busiest + 1, {{newcomer.rank, piece.end, piece.end}, false, {}});
      take_out(loads, load(piece));
      ++repair_.newcomers;
      relieve({at, at + 2, 2}, least, loads);
    }
  }

  // `loads`: of all outside the window; afterwards of all.
  void relieve(Window window, double least, Loads& loads) {
    const std::uint32_t stage = line_.stage_of(first_cell(window));
    const bool in_stage = is_in_stage(places_[window.first].piece, stage);
    Window best = window;
    double lowest = 0;
    std::vector<double> joined;  // since `best`
    for (bool first = true; in_stage; first = false) {
      const double most = std::max(loads.empty() ? 0 : loads.rbegin()->first, share(window, stage));
      if (first || most < lowest) {
        best = window;
        lowest = most;
        joined.clear();
      }
      const auto left = neighbour(window, true, stage), right = neighbour(window, false, stage);
      if (lowest <= least * kRounding || (!left && !right)) break;
      const bool go_left = left && (!right || places_[*left].piece.count() >= places_[*right].piece.count());
      const std::size_t next = go_left ? *left : *right;
      joined.push_back(load(places_[next].piece));
      take_out(loads, joined.back());
      window = with(window, next);
    }
    for (const double of_joined : joined) ++loads[of_joined];
    deal_out(best, in_stage ? cut_lanes(best) : cut(best));
    for (std::size_t at = best.first; at < best.end; ++at) ++loads[load(places_[at].piece)];
  }

  const CellLine& line_;
  const Plan& before_;
  const std::vector<PlanMember>& workers_;
  std::vector<Place> places_;          // in the order of the line
  std::vector<PlanMember> newcomers_;  // without a place so far
  CellRepair repair_;
};

}  // namespace

CellRepair repair_cells(const CellLine& line, const CellPieces& in_force, const Plan& before,
                        const std::vector<PlanMember>& workers) {
  return Repairer(line, in_force, before, workers).run();
}

}  // namespace kintsugi
