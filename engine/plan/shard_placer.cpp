#include "engine/plan/shard_placer.hpp"

#include <algorithm>
#include <tuple>

#include "base/assert.hpp"

namespace kintsugi {

namespace {

constexpr std::size_t kNoPlace = ~std::size_t{0};

// What is left of [first, end) without `excluded`, run by run.
template <class Span, class Spans, class Visit>
void for_each_gap(Span range, Spans excluded, const Visit& visit) {
  std::sort(excluded.begin(), excluded.end(), [](Span a, Span b) { return a.first < b.first; });
  std::size_t at = range.first;
  for (const Span& span : excluded) {
    if (span.first >= range.end) break;
    if (at < span.first) visit(Span{at, span.first});
    at = std::max(at, span.end);
  }
  if (at < range.end) visit(Span{at, range.end});
}

template <class Spans>
bool is_in(const Spans& spans, std::size_t at) {
  return std::any_of(spans.begin(), spans.end(), [&](const auto& s) { return at >= s.first && at < s.end; });
}

// By rack, node, rank. Racks are numbered from 0: members are dealt out to them, and sorted there.
void sort_by_place(std::vector<PlanMember>& members) {
  std::uint32_t racks = 0;
  for (const PlanMember& m : members) racks = std::max(racks, m.rack.value + 1);
  std::vector<std::size_t> end(racks + 1, 0);  // by rack; at first where it begins
  for (const PlanMember& m : members) ++end[m.rack.value + 1];
  for (std::uint32_t r = 0; r < racks; ++r) end[r + 1] += end[r];
  std::vector<PlanMember> sorted(members.size());
  for (const PlanMember& m : members) sorted[end[m.rack.value]++] = m;
  auto first = sorted.begin();
  for (std::uint32_t r = 0; r < racks; ++r) {
    const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(end[r]);
    std::sort(first, last, [](const PlanMember& a, const PlanMember& b) {
      return std::tie(a.node, a.rank) < std::tie(b.node, b.rank);
    });
    first = last;
  }
  members = std::move(sorted);
}

}  // namespace

bool ShardPlacer::Candidate::operator<(const Candidate& other) const {
  return std::tuple(is_overloaded, !has_copy, load, rank) <
         std::tuple(other.is_overloaded, !other.has_copy, other.load, other.rank);
}

ShardPlacer::ShardPlacer(const PlanRequest& request, const Plan& plan, const ModelLayout& layout, std::size_t copies,
                         ShardsKept kept)
    : request_(request), plan_(plan), layout_(layout), kept_(kept) {
  arrange_members();
  arrange_workers();
  replicas_ = std::min(copies, members_.size()) - 1;
  fair_share_ = static_cast<double>(layout.parameter_count()) / static_cast<double>(members_.size());
}

void ShardPlacer::arrange_members() {
  for (const PlanMember& m : request_.members) {
    if (!m.idle) members_.push_back(m);
  }
  sort_by_place(members_);
  rack_.resize(members_.size());
  node_.resize(members_.size());
  place_.assign(plan_.ranks.back().rank.value + 1, kNoPlace);
  const auto same_node = [&](std::size_t a, std::size_t b) {
    return members_[a].rack == members_[b].rack && members_[a].node == members_[b].node;
  };
  const auto same_rack = [&](std::size_t a, std::size_t b) {
    return members_[a].rack == RackId{} ? same_node(a, b) : members_[a].rack == members_[b].rack;
  };
  const auto mark = [&](std::vector<Span>& spans, const auto& same) {
    std::size_t count = 0;
    for (std::size_t first = 0, end = 0; first < members_.size(); first = end, ++count) {
      while (end < members_.size() && same(first, end)) ++end;
      std::fill(spans.begin() + static_cast<std::ptrdiff_t>(first), spans.begin() + static_cast<std::ptrdiff_t>(end),
                Span{first, end});
    }
    return count;
  };
  nodes_ = mark(node_, same_node);
  racks_ = mark(rack_, same_rack);
  for (std::size_t m = 0; m < members_.size(); ++m) place_[members_[m].rank.value] = m;
}

void ShardPlacer::arrange_workers() {
  std::vector<std::size_t> workers;  // by block
  for (const StagePlan& stage : plan_.stages) {
    first_block_.push_back(workers.size());
    for (const CellBlock& block : stage.blocks) workers.push_back(member_of(block.rank).value());
  }
  first_block_.push_back(workers.size());
  for (const ParameterGroup& group : layout_.groups()) {
    Spans& spans = stages_of_group_.emplace_back();
    for (const LayerId use : group.uses) {
      const std::uint32_t s = plan_.stage_of(use).value;
      spans.push_back({first_block_[s], first_block_[s + 1]});
    }
  }
  first_of_.assign(members_.size() + 1, 0);
  for (const std::size_t m : workers) ++first_of_[m + 1];
  for (std::size_t m = 0; m < members_.size(); ++m) first_of_[m + 1] += first_of_[m];
  blocks_of_.resize(workers.size());
  std::vector<std::size_t> next(first_of_.begin(), first_of_.end() - 1);
  for (std::size_t b = 0; b < workers.size(); ++b) blocks_of_[next[workers[b]]++] = b;
}

std::optional<std::size_t> ShardPlacer::member_of(RankId rank) const {
  if (rank.value >= place_.size() || place_[rank.value] == kNoPlace) return std::nullopt;
  return place_[rank.value];
}

bool ShardPlacer::has_copy(ShardId shard, RankId rank) const {
  if (request_.copies.empty()) return false;
  const FewRanks& copies = request_.copies[shard.value];
  return std::find(copies.begin(), copies.end(), rank) != copies.end();
}

bool ShardPlacer::works_a_use(const Shard& shard, std::size_t member) const {
  const Spans& stages = stages_of(shard);
  const auto first = blocks_of_.begin() + static_cast<std::ptrdiff_t>(first_of_[member]);
  const auto end = blocks_of_.begin() + static_cast<std::ptrdiff_t>(first_of_[member + 1]);
  return std::any_of(first, end, [&](std::size_t block) { return is_in(stages, block); });
}

std::vector<ShardPlacer::Open> ShardPlacer::keep() {
  std::vector<Open> all(layout_.shards().size());
  std::vector<std::int64_t> as_primary(members_.size(), 0), as_replica(members_.size(), 0);  // elements
  for (const Shard& shard : layout_.shards()) {
    if (kept_ == ShardsKept::none) break;
    const ShardHolders& before = request_.in_force->shards[shard.id.value];
    Open& open = all[shard.id.value];
    const auto stays = [&](RankId rank, const std::vector<std::int64_t>& loads,
                           double share) -> std::optional<std::size_t> {
      const std::optional<std::size_t> member = member_of(rank);
      if (!member) return std::nullopt;
      const Candidate c = candidate(shard, *member, loads[*member], share);
      return c.has_copy && (kept_ == ShardsKept::all || !c.is_overloaded) ? member : std::nullopt;
    };
    if (const auto member = stays(before.primary, as_primary, fair_share_); member && works_a_use(shard, *member)) {
      open.primary = before.primary;
      as_primary[*member] += shard.count;
    }
    for (const RankId replica : before.replicas) {
      const auto member = stays(replica, as_replica, fair_share_ * static_cast<double>(replicas_));
      if (!member || open.replicas.size() == replicas_) continue;
      open.replicas.push_back(replica);
      as_replica[*member] += shard.count;
    }
  }
  std::vector<RankId> workers;
  std::vector<std::int64_t> loads;
  for (const StagePlan& stage : plan_.stages) {
    for (const CellBlock& block : stage.blocks) {
      workers.push_back(block.rank);
      loads.push_back(as_primary[member_of(block.rank).value()]);
    }
  }
  primaries_.emplace(std::move(workers), std::move(loads));
  std::vector<RankId> ranks;
  for (const PlanMember& m : members_) ranks.push_back(m.rank);
  replica_load_.emplace(std::move(ranks), std::move(as_replica));
  return all;
}

std::vector<ShardHolders> ShardPlacer::run() {
  std::vector<Open> open = keep();
  std::vector<ShardHolders> all;
  all.reserve(open.size());
  for (const Shard& shard : layout_.shards()) {
    Open& mine = open[shard.id.value];
    const RankId primary = mine.primary ? *mine.primary : place_primary(shard, mine);
    all.push_back({primary, std::move(mine.replicas)});
  }
  for (const Shard& shard : layout_.shards()) {
    ShardHolders& holders = all[shard.id.value];
    spread(shard, holders);
    while (holders.replicas.size() < replicas_) holders.replicas.push_back(place_replica(shard, holders));
  }
  return all;
}

void ShardPlacer::spread(const Shard& shard, ShardHolders& holders) {
  if (holders.replicas.empty()) return;
  const std::size_t primary = member_of(holders.primary).value();
  if (kept_ == ShardsKept::all && holders.replicas.size() == 1 &&
      node_[member_of(holders.replicas[0]).value()].first != node_[primary].first) {
    return;  // most often
  }
  std::vector<std::size_t> nodes, racks;  // of holders that stay, by where they begin
  const auto add = [&](std::size_t member) {
    nodes.push_back(node_[member].first);
    racks.push_back(rack_[member].first);
  };
  const auto shares = [](const std::vector<std::size_t>& domains, std::size_t mine, std::size_t all) {
    return domains.size() < all && std::find(domains.begin(), domains.end(), mine) != domains.end();
  };
  add(primary);
  erase_if(holders.replicas, [&](RankId replica) {
    const std::size_t member = member_of(replica).value();
    const bool moves = shares(nodes, node_[member].first, nodes_) ||
                       (kept_ == ShardsKept::fair && shares(racks, rack_[member].first, racks_));
    if (moves)
      replica_load_->set(member, replica_load_->load(member) - shard.count);
    else
      add(member);
    return moves;
  });
}

ShardPlacer::Candidate ShardPlacer::candidate(const Shard& shard, std::size_t member, std::int64_t load,
                                              double share) const {
  const RankId rank = members_[member].rank;
  return {rank, static_cast<double>(load + shard.count) > kWorthKeeping * share, has_copy(shard.id, rank), load};
}

ShardPlacer::Spans ShardPlacer::avoided(const FewRanks& holders, Avoid what) const {
  Spans spans;
  for (const RankId holder : holders) {
    const std::size_t member = member_of(holder).value();
    if (what == Avoid::both || what == Avoid::nodes) spans.push_back(node_[member]);
    const bool racks = what == Avoid::both || what == Avoid::racks;
    if (racks && members_[member].rack != RackId{}) spans.push_back(rack_[member]);
  }
  return spans;
}

RankId ShardPlacer::place_primary(const Shard& shard, Open& open) {
  ++placed_;
  const Spans& stages = stages_of(shard);
  const auto load_of = [&](std::size_t member) { return primaries_->load(blocks_of_[first_of_[member]]); };
  std::optional<Candidate> best;
  const auto consider = [&](std::size_t member) {
    const Candidate c = candidate(shard, member, load_of(member), fair_share_);
    if (!best || c < *best) best = c;
  };
  // A replica that works a use has all it takes.
  for (const RankId replica : open.replicas) {
    if (const std::size_t member = member_of(replica).value(); works_a_use(shard, member)) consider(member);
  }
  if (!best || best->is_overloaded) {
    const std::optional<Candidate> promoted = std::exchange(best, std::nullopt);
    for (const Avoid what : kAvoid) {
      const Spans strangers = avoided(open.replicas, what);
      Spans excluded;  // in primaries_
      for (const Span& span : strangers) {
        for (std::size_t i = first_of_[span.first]; i < first_of_[span.end]; ++i) {
          excluded.push_back({blocks_of_[i], blocks_of_[i] + 1});
        }
      }
      for (const RankId replica : open.replicas) {
        const std::size_t member = member_of(replica).value();
        for (std::size_t i = first_of_[member]; i < first_of_[member + 1]; ++i) {
          excluded.push_back({blocks_of_[i], blocks_of_[i] + 1});
        }
      }
      for (const Span& stage : stages) {
        for_each_gap(stage, excluded, [&](Span gap) {
          if (const auto least = primaries_->least(gap.first, gap.end)) consider(*member_of(primaries_->rank(*least)));
        });
      }
      for (const RankId copy : request_.copies.empty() ? FewRanks{} : request_.copies[shard.id.value]) {
        const auto member = member_of(copy);
        const bool is_other = std::find(open.replicas.begin(), open.replicas.end(), copy) == open.replicas.end();
        if (member && is_other && !is_in(strangers, *member) && works_a_use(shard, *member)) consider(*member);
      }
      if (best) break;
    }
    if (promoted && (!best || best->is_overloaded)) best = promoted;
  }
  KINTSUGI_ASSERT_MSG(best.has_value(), "a stage that nobody works");
  if (const auto at = std::find(open.replicas.begin(), open.replicas.end(), best->rank); at != open.replicas.end()) {
    const std::size_t member = *member_of(best->rank);
    replica_load_->set(member, replica_load_->load(member) - shard.count);
    open.replicas.erase(at);
  }
  const std::size_t member = *member_of(best->rank);
  for (std::size_t i = first_of_[member]; i < first_of_[member + 1]; ++i) {
    primaries_->set(blocks_of_[i], best->load + shard.count);
  }
  return best->rank;
}

RankId ShardPlacer::place_replica(const Shard& shard, const ShardHolders& holders) {
  ++placed_;
  FewRanks ranks = holders.replicas;
  ranks.push_back(holders.primary);
  const double share = fair_share_ * static_cast<double>(replicas_);
  std::optional<Candidate> best;
  const auto consider = [&](std::size_t member) {
    const Candidate c = candidate(shard, member, replica_load_->load(member), share);
    if (!best || c < *best) best = c;
  };
  for (const Avoid what : kAvoid) {
    Spans excluded = avoided(ranks, what);
    for (const RankId rank : ranks) {
      const std::size_t member = *member_of(rank);
      excluded.push_back({member, member + 1});
    }
    for_each_gap(Span{0, members_.size()}, excluded, [&](Span gap) {
      if (const auto least = replica_load_->least(gap.first, gap.end)) consider(*least);
    });
    for (const RankId copy : request_.copies.empty() ? FewRanks{} : request_.copies[shard.id.value]) {
      if (const auto member = member_of(copy); member && !is_in(excluded, *member)) consider(*member);
    }
    if (best) break;
  }
  KINTSUGI_ASSERT_MSG(best.has_value(), "fewer members than copies");
  const std::size_t member = *member_of(best->rank);
  replica_load_->set(member, best->load + shard.count);
  return best->rank;
}

}  // namespace kintsugi
