// ChangeModel: nodes and ranks that keep the protocol, and what may happen to them.
#include <algorithm>

#include "tests/engine/control/change_model.hpp"
#include "tests/engine/control/job_case.hpp"

namespace kintsugi::testing {

using Phase = ModelRank::Phase;

void ChangeModel::send(World& world, NodeId node, Up up) {
  up.node = node;
  world.nodes[node.value].outbox.push_back(ups_.number(up));
}

// To all, or to the members of a plan. Nobody who is dead or hangs reads any more.
void ChangeModel::to_ranks(World& world, const Down& down, const Plan* members) {
  for (std::uint32_t r = 0; r < world.ranks.size(); ++r) {
    ModelRank& rank = world.ranks[r];
    const bool reads = rank.alive && !rank.hung && rank.announced;
    if (!reads || (members != nullptr && !members->has({r}))) continue;
    // The answer to a fence that a higher one follows at once is stale before it is given.
    const bool fences = down.kind == Down::Kind::fence && !rank.inbox.empty();
    if (fences && rank.inbox.back().kind == Down::Kind::fence) rank.inbox.pop_back();
    rank.inbox.push_back(down);
  }
}

RankReport ChangeModel::inventory(const World& world, std::uint32_t r) const {
  const ModelRank& rank = world.ranks[r];
  RankReport report{{r}, rank.node, rank.alive, {}, rank.alive ? rank.record : std::nullopt};
  for (std::uint32_t s = 0; s < kShards; ++s) {
    const ModelCopy& c = rank.copies[s];
    if (c.version == kNothing) continue;
    report.copies.push_back({{s}, {c.version}, c.version, {s, c.version}, c.gradient});
  }
  return report;
}

void ChangeModel::node_reads(World& world, std::uint32_t n) {
  const Down down = world.nodes[n].inbox.front();
  world.nodes[n].inbox.erase(world.nodes[n].inbox.begin());
  if (down.kind == Down::Kind::kill) return kill(world, down.rank.value);
  Up up{.kind = Up::Kind::node_reported, .generation = {1, down.generation}};
  for (std::uint32_t r = 0; r < world.ranks.size(); ++r) {
    const ModelRank& rank = world.ranks[r];
    if (rank.node.value == n && !rank.alive && rank.announced) up.reports.push_back(inventory(world, r));
  }
  send(world, {n}, std::move(up));
}

void ChangeModel::rank_reads(World& world, std::uint32_t r) {
  ModelRank& rank = world.ranks[r];
  const Down down = rank.inbox.front();
  rank.inbox.erase(rank.inbox.begin());
  switch (down.kind) {
    case Down::Kind::fence:
      if (down.generation <= rank.promised) return;
      rank.promised = down.generation;
      rank.phase = Phase::idle;
      rank.complained = false;
      rank.ready = rank.voted = rank.voted_for = 0;
      return send(world, rank.node,
                  {.kind = Up::Kind::reported,
                   .rank = {r},
                   .generation = {1, down.generation},
                   .reports = {inventory(world, r)},
                   .order = rules_.counted ? rank.order : kNothing});
    case Down::Kind::prepare:
      if (down.generation == rank.promised && rank.phase == Phase::idle) prepare(world, r, down);
      return;
    case Down::Kind::intend:
      if (rank.phase == Phase::running) rank.ready = down.generation;
      return;
    case Down::Kind::resume:
      if (down.generation != rank.promised || rank.phase != Phase::prepared) return;
      rank.phase = Phase::running;
      for (std::uint32_t s = 0; s < kShards; ++s) {
        if (!orders_[rank.order].plan.shards[s].has({r})) rank.copies[s] = {};
      }
      return;
    case Down::Kind::kill: break;
  }
  KINTSUGI_UNREACHABLE();
}

// Own copies come to the cut, memory on the node is taken over; what others have follows in completes().
void ChangeModel::prepare(World& world, std::uint32_t r, const Down& down) {
  ModelRank& rank = world.ranks[r];
  const Transition& transition = orders_[down.order].transition;
  rank.phase = Phase::preparing;
  rank.order = down.order;
  rank.applied = static_cast<std::uint32_t>(transition.step.value);
  if (transition.record) rank.record = transition.record;
  for (ModelCopy& copy : rank.copies) {
    const bool short_by_one = copy.gradient && copy.version + 1 == rank.applied && transition.record;
    if (copy.version != rank.applied && !short_by_one) {
      copy = {};
    } else {
      copy = {rank.applied, false};
    }
  }
  for (const ShardMove& move : transition.moves) {
    if (!move.take_over || move.to.value != r) continue;
    rank.copies[move.shard.value] = std::exchange(world.ranks[move.from.value].copies[move.shard.value], {});
  }
}

void ChangeModel::kill(World& world, std::uint32_t r) {
  ModelRank& rank = world.ranks[r];
  if (!rank.alive) return;
  rank.alive = false;
  rank.inbox.clear();
  for (ModelCopy& copy : rank.copies) copy.gradient = false;
  send(world, rank.node, {.kind = Up::Kind::down, .rank = {r}});
}

void ChangeModel::lose(World& world, std::uint32_t n, bool dropped) {
  ModelNode& node = world.nodes[n];
  node.lost = true;
  node.inbox.clear();
  if (dropped) node.outbox.clear();
  for (ModelRank& rank : world.ranks) {
    if (rank.node.value != n) continue;
    rank.alive = false;
    rank.inbox.clear();
    rank.copies = {};
  }
  send(world, {n}, {.kind = Up::Kind::node_lost});
}

void ChangeModel::deliveries(const World& world, Happenings& out) {
  for (std::uint32_t n = 0; n < world.nodes.size(); ++n) {
    if (!world.nodes[n].outbox.empty()) {
      Happening& h = out.emplace_back(Happening{"the supervisor hears node", n, world});
      std::vector<std::uint32_t>& outbox = h.after.nodes[n].outbox;
      const std::uint32_t up = outbox.front();
      outbox.erase(outbox.begin());
      const Reaction& reaction = react(h.after.machine, up);
      h.after.machine = reaction.machine;
      carry_out(h.after, reaction.effects);
    }
    if (!world.nodes[n].inbox.empty())
      node_reads(out.emplace_back(Happening{"a message reaches node", n, world}).after, n);
  }
  for (std::uint32_t r = 0; r < world.ranks.size(); ++r) {
    if (world.ranks[r].hung || world.ranks[r].inbox.empty()) continue;
    rank_reads(out.emplace_back(Happening{"a message reaches rank", r, world}).after, r);
  }
}

// A gradient needs the work of every member; a copy is one step behind its record at most.
void ChangeModel::works(const World& world, std::uint32_t r, Happenings& out) {
  const ModelRank& rank = world.ranks[r];
  const Plan& plan = orders_[rank.order].plan;
  const bool all_work = std::all_of(plan.ranks.begin(), plan.ranks.end(), [&](const PlanRank& m) {
    const ModelRank& peer = world.ranks[m.rank.value];
    return peer.alive && !peer.hung && peer.phase == Phase::running && peer.order == rank.order &&
           peer.applied >= rank.applied;
  });
  const bool last = rank.record && rank.record->step.value == rank.applied &&
                    rank.record->generation == plan.generation && rank.record->next_generation;
  if (all_work && !last && rank.voted <= rank.applied && rank.applied < rules_.steps) {
    ModelRank& after = out.emplace_back(Happening{"gradients are complete at rank", r, world}).after.ranks[r];
    after.voted = rank.applied + 1;
    after.voted_for = rank.ready;
    for (ModelCopy& copy : after.copies) copy.gradient = copy.version != kNothing;
  }
  if (rank.record && rank.record->step.value == rank.applied + 1 && rank.voted == rank.applied + 1) {
    ModelRank& after = out.emplace_back(Happening{"the step is applied by rank", r, world}).after.ranks[r];
    ++after.applied;
    for (ModelCopy& copy : after.copies) {
      if (copy.version != kNothing) copy = {after.applied, false};
    }
  }
  const bool bereft = std::any_of(plan.ranks.begin(), plan.ranks.end(),
                                  [&](const PlanRank& m) { return !world.ranks[m.rank.value].alive; });
  const bool told = std::any_of(plan.ranks.begin(), plan.ranks.end(),
                                [&](const PlanRank& m) { return world.ranks[m.rank.value].complained; });
  if (bereft && !told) {
    World& after = out.emplace_back(Happening{"a peer is missed by rank", r, world}).after;
    after.ranks[r].complained = true;
    send(after, rank.node, {.kind = Up::Kind::failed, .rank = {r}, .generation = {1, rank.promised}});
  }
}

// The root has all votes, some of them perhaps of ranks that have died since; others learn the record from whoever knew.
void ChangeModel::votes(const World& world, std::uint32_t r, Happenings& out) {
  const ModelRank& rank = world.ranks[r];
  const Plan& plan = orders_[rank.order].plan;
  const std::uint32_t step = rank.applied + 1;
  if (rank.voted != step || (rank.record && rank.record->step.value >= step)) return;
  const auto voted = [&](const PlanRank& m) {
    const ModelRank& peer = world.ranks[m.rank.value];
    return peer.order == rank.order && peer.voted == step;
  };
  if (plan.root().value == r && std::all_of(plan.ranks.begin(), plan.ranks.end(), voted)) {
    World& after = out.emplace_back(Happening{"the record is made by rank", r, world}).after;
    DecisionRecord record{{1}, {1}, plan.generation, {step}};
    record.updates = step;
    const bool ready = rank.voted_for != 0 && std::all_of(plan.ranks.begin(), plan.ranks.end(), [&](const PlanRank& m) {
                         return world.ranks[m.rank.value].voted_for == rank.voted_for;
                       });
    if (ready) record.next_generation = Generation{1, rank.voted_for};
    after.ranks[r].record = record;
    send(after, rank.node, {.kind = Up::Kind::step_final, .record = record});
    return;
  }
  for (const PlanRank& m : plan.ranks) {
    const ModelRank& peer = world.ranks[m.rank.value];
    if (!peer.record || peer.record->step.value != step || peer.record->generation != plan.generation) continue;
    out.emplace_back(Happening{"the record is learnt by rank", r, world}).after.ranks[r].record = peer.record;
    return;
  }
}

void ChangeModel::completes(const World& world, std::uint32_t r, Happenings& out) {
  const Order& order = orders_[world.ranks[r].order];
  for (const ShardMove& move : order.transition.moves) {
    if (move.take_over || move.to.value != r) continue;
    const ModelRank& from = world.ranks[move.from.value];
    if (!from.alive || from.hung || from.order != world.ranks[r].order) return;
    EXPECT_TRUE(from.copies[move.shard.value].version == order.transition.step.value);
  }
  World& after = out.emplace_back(Happening{"the generation is prepared by rank", r, world}).after;
  ModelRank& rank = after.ranks[r];
  rank.phase = Phase::prepared;
  for (const ShardMove& move : order.transition.moves) {
    if (!move.take_over && move.to.value == r) rank.copies[move.shard.value] = {rank.applied, false};
  }
  send(after, rank.node,
       {.kind = Up::Kind::prepared, .rank = {r}, .generation = order.plan.generation, .order = rank.order});
}

void ChangeModel::faults(const World& world, Happenings& out) {
  if (world.faults == 0) return;
  const auto fault = [&](const char* what, std::uint32_t who) -> World& {
    World& after = out.emplace_back(Happening{what, who, world}).after;
    --after.faults;
    return after;
  };
  for (std::uint32_t r = 0; r < world.ranks.size(); ++r) {
    if (!world.ranks[r].alive || !world.ranks[r].announced) continue;
    kill(fault("death of rank", r), r);
    if (!rules_.hang || world.ranks[r].hung) continue;
    ModelRank& rank = fault("silence of rank", r).ranks[r];
    rank.hung = true;
    rank.inbox.clear();
  }
  for (std::uint32_t n = 0; n < world.nodes.size(); ++n) {
    if (world.nodes[n].lost) continue;
    lose(fault("loss of node", n), n, false);
    if (rules_.dropped) lose(fault("loss of messages and of node", n), n, true);
  }
  const JobPhase phase = machines_[world.machine].phase();
  const bool patient = phase == JobPhase::fencing || phase == JobPhase::preparing || phase == JobPhase::running;
  if (rules_.hang && patient) {
    World& after = fault("early deadline", 0);
    feed(after, job_event::DeadlinePassed{after.deadline});
  }
}

std::vector<Happening> ChangeModel::next(const World& world) {
  Happenings out;
  const JobPhase phase = machines_[world.machine].phase();
  if (phase == JobPhase::stopping || phase == JobPhase::ended) return out;
  deliveries(world, out);
  for (std::uint32_t r = 0; r < world.ranks.size(); ++r) {
    const ModelRank& rank = world.ranks[r];
    if (!rank.alive || rank.hung) continue;
    if (rank.phase == Phase::preparing) completes(world, r, out);
    if (rank.phase != Phase::running) continue;
    works(world, r, out);
    votes(world, r, out);
  }
  // Time passes when nothing else happens.
  if (out.empty() && !is_done(world)) {
    World& after = out.emplace_back(Happening{"deadline", 0, world}).after;
    feed(after, job_event::DeadlinePassed{after.deadline});
  }
  faults(world, out);
  for (Happening& h : out) settle(h.after);
  return out;
}

bool ChangeModel::is_end(const World& world) {
  const JobPhase phase = machines_[world.machine].phase();
  if (phase == JobPhase::stopping || phase == JobPhase::ended) return true;
  World calm = world;
  calm.faults = 0;
  if (!is_done(world) || !next(calm).empty()) return false;
  for (std::uint32_t s = 0; s < kShards; ++s) {
    const ShardHolders& holders = machines_[world.machine].plan()->shards[s];
    for (std::uint32_t r = 0; r < world.ranks.size(); ++r) {
      const ModelRank& rank = world.ranks[r];
      EXPECT_TRUE(!holders.has({r}) || rank.hung || (rank.alive && rank.copies[s].version == rules_.steps))
          << "rank " << r << " shard " << s;
    }
  }
  return true;
}

}  // namespace kintsugi::testing
