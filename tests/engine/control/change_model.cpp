#include "tests/engine/control/change_model.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "tests/engine/control/job_case.hpp"

namespace kintsugi::testing {

namespace effect = job_effect;
using Phase = ModelRank::Phase;

namespace {

JobRequest small_request() {
  JobRequest request = job_request(3);
  request.config.model.layers = 1;
  request.config.model.width = 8;
  request.config.model.hidden = 32;
  return request;
}

void hash(Hasher& hasher, const std::vector<Down>& inbox) {
  hasher.update_u64(inbox.size());
  for (const Down& d : inbox) {
    hasher.update_u64(static_cast<std::uint64_t>(d.kind));
    hasher.update_u64(d.generation);
    hasher.update_u64(d.order);
    hasher.update_u64(d.rank.value);
  }
}

void hash(Hasher& hasher, const ModelRank& r) {
  hasher.update_u64(r.node.value);
  hasher.update_u64((r.alive ? 1 : 0) + (r.hung ? 2 : 0) + (r.announced ? 4 : 0) + (r.complained ? 8 : 0));
  hasher.update_u64(static_cast<std::uint64_t>(r.phase));
  for (const std::uint32_t v : {r.promised, r.order, r.applied, r.voted, r.ready, r.voted_for}) hasher.update_u64(v);
  hasher.update_u64(r.record ? r.record->step.value + 1 : 0);
  hasher.update_u64(r.record ? r.record->generation.counter : 0);
  hasher.update_u64(r.record && r.record->next_generation ? r.record->next_generation->counter : 0);
  for (const ModelCopy& c : r.copies) hasher.update_u64(c.version * std::uint64_t{2} + (c.gradient ? 1 : 0));
  hash(hasher, r.inbox);
}

}  // namespace

Digest World::digest() const {
  Hasher hasher;
  for (const std::uint64_t v : {std::uint64_t{machine}, deadline, std::uint64_t{faults}, std::uint64_t{reported},
                                std::uint64_t{fenced}, std::uint64_t{planned}}) {
    hasher.update_u64(v);
  }
  for (const ModelNode& n : nodes) {
    hasher.update_u64(n.lost ? 1 : 0);
    hash(hasher, n.inbox);
    hasher.update_u64(n.outbox.size());
    for (const std::uint32_t up : n.outbox) hasher.update_u64(up);
  }
  for (const ModelRank& r : ranks) hash(hasher, r);
  return hasher.finish();
}

std::uint64_t ChangeModel::MachineBucket::operator()(const JobMachine& m) const {
  Hasher hasher;
  for (const std::uint64_t v :
       {static_cast<std::uint64_t>(m.phase()), std::uint64_t{m.generation().counter}, m.final_step().value}) {
    hasher.update_u64(v);
  }
  if (m.plan()) {
    const Digest plan = m.plan()->digest();
    hasher.update_u64(plan.low);
  }
  return hasher.finish().low;
}

std::uint64_t ChangeModel::UpBucket::operator()(const Up& u) const {
  return static_cast<std::uint64_t>(u.kind) + (u.rank.value << 4) + (u.node.value << 8) +
         (std::uint64_t{u.generation.counter} << 12);
}

World ChangeModel::start() {
  World world;
  JobMachine machine(small_request());
  const Instant now{1000};
  machine.start(now);
  const auto say = [&](const JobEvent& event) {
    const JobEffects effects = machine.step(event, now);
    for (const JobEffect& e : effects) {
      if (const auto* armed = std::get_if<effect::ArmDeadline>(&e)) world.deadline = armed->number;
    }
  };
  say(job_event::NodeReady{{0}, "a", 2});
  say(job_event::NodeReady{{1}, "b", 1});
  for (std::uint32_t r = 0; r < 3; ++r) say(job_event::RankUp{{r}, "cpu"});
  for (std::uint32_t r = 0; r < 3; ++r) say(job_event::RankReported{{1, 1}, {{r}, {r / 2}, true, {}, std::nullopt}});
  for (std::uint32_t n = 0; n < 2; ++n) say(job_event::NodeReported{{n}, {1, 1}, {}});
  const Plan plan = *machine.plan();
  KINTSUGI_ASSERT(plan.shards.size() == kShards);
  for (std::uint32_t r = 0; r < 3; ++r) say(job_event::RankPrepared{{r}, {1, 1}, plan.digest(), {0}});
  KINTSUGI_ASSERT(machine.phase() == JobPhase::running);

  world.fenced = world.planned = 1;
  for (std::uint32_t r = 0; r < 3; ++r) {
    ModelRank rank;
    rank.node = {r / 2};
    rank.announced = true;
    rank.phase = Phase::running;
    rank.promised = 1;
    rank.order = orders_.number({plan, {}});
    for (std::uint32_t s = 0; s < kShards; ++s) {
      if (plan.shards[s].has({r})) rank.copies[s].version = 0;
    }
    world.ranks.push_back(rank);
  }
  world.machine = machines_.number(machine);
  return world;
}

// Empty: it holds something else than the plan gives it, or is new.
std::optional<JobEvent> ChangeModel::counted(const Up& up) {
  const RankReport& report = up.reports.at(0);
  if (up.order == kNothing || report.copies.empty()) return std::nullopt;
  const Step version = report.copies.front().version;
  auto& plan = plans_[up.order];
  if (!plan) plan = std::make_shared<const Plan>(orders_[up.order].plan);
  auto& digests = digests_[static_cast<std::uint32_t>(version.value)];
  if (!digests) {
    std::vector<Digest> all;
    for (std::uint32_t s = 0; s < kShards; ++s) all.push_back({s, version.value});
    digests = std::make_shared<const std::vector<Digest>>(std::move(all));
  }
  CountedRanks said{{}, plan, version, version.value, digests, report.record, {}};
  if (!plan->has(report.rank)) return std::nullopt;
  CountedRanks alone = said;
  alone.ranks.insert(report.rank);
  std::vector<RankReport> unfolded = unfold(alone);
  std::sort(unfolded[0].copies.begin(), unfolded[0].copies.end(),
            [](const CopyReport& a, const CopyReport& b) { return a.shard < b.shard; });
  if (unfolded[0] != report) return std::nullopt;
  RankSet others;
  for (std::uint32_t r = 0; r < 16; ++r) {
    if (r != report.rank.value) others.insert({r});
  }
  return job_event::OthersReported{up.generation, others, {{0}, {1}}, std::move(said)};
}

JobEvent ChangeModel::event_of(const Up& up) {
  using namespace job_event;  // NOLINT(google-build-using-namespace)
  switch (up.kind) {
    case Up::Kind::rank_up: return RankUp{up.rank, "cpu"};
    case Up::Kind::reported: return counted(up).value_or(RankReported{up.generation, up.reports.at(0)});
    case Up::Kind::node_reported: return NodeReported{up.node, up.generation, up.reports};
    case Up::Kind::prepared: {
      const Order& order = orders_[up.order];
      return RankPrepared{up.rank, up.generation, order.plan.digest(), order.transition.step};
    }
    case Up::Kind::step_final: return StepFinal{*up.record};
    case Up::Kind::failed: return RankFailed{up.rank, up.generation, {ErrorAction::end_generation, "a peer is gone"}};
    case Up::Kind::down: return RankDown{up.rank, "was killed by signal 9 (Killed)"};
    case Up::Kind::node_lost: return NodeLost{up.node, "connection reset"};
  }
  KINTSUGI_UNREACHABLE();
}

void ChangeModel::feed(World& world, const JobEvent& event) {
  JobMachine machine = machines_[world.machine];
  const JobEffects effects = machine.step(event, Instant{1000});
  world.machine = machines_.number(machine);
  carry_out(world, effects);
}

const ChangeModel::Reaction& ChangeModel::react(std::uint32_t number, std::uint32_t up) {
  const std::uint64_t key = (std::uint64_t{number} << 32) | up;
  const auto known = reactions_.find(key);
  if (known != reactions_.end()) return known->second;
  JobMachine machine = machines_[number];
  JobEffects effects = machine.step(event_of(ups_[up]), Instant{1000});
  return reactions_.emplace(key, Reaction{machines_.number(machine), std::move(effects)}).first->second;
}

// What the machine drops, it may drop at once: what is stale stays stale.
void ChangeModel::settle(World& world) {
  for (ModelNode& node : world.nodes) {
    while (!node.outbox.empty()) {
      const Reaction& reaction = react(world.machine, node.outbox.front());
      if (reaction.machine != world.machine || !reaction.effects.empty()) break;
      node.outbox.erase(node.outbox.begin());
    }
  }
}

void ChangeModel::carry_out(World& world, const JobEffects& effects) {
  for (const JobEffect& e : effects) {
    if (const auto* armed = std::get_if<effect::ArmDeadline>(&e)) world.deadline = armed->number;
    if (const auto* start = std::get_if<effect::StartRanks>(&e)) {
      for (const PlanRank& r : start->ranks) {
        EXPECT_EQ(r.rank.value, world.ranks.size());
        world.ranks.push_back({});
        world.ranks.back().node = r.node;
        world.ranks.back().alive = !world.nodes[r.node.value].lost;
      }
    }
    if (const auto* fence = std::get_if<effect::Fence>(&e)) {
      EXPECT_GT(fence->generation.counter, world.fenced);
      world.fenced = fence->generation.counter;
      const Down down{Down::Kind::fence, world.fenced};
      to_ranks(world, down, nullptr);
      for (ModelNode& node : world.nodes) {
        if (node.lost) continue;
        if (!node.inbox.empty() && node.inbox.back().kind == Down::Kind::fence) node.inbox.pop_back();
        node.inbox.push_back(down);
      }
    }
    if (const auto* prepare = std::get_if<effect::Prepare>(&e)) {
      EXPECT_TRUE(prepare->transition) << "trained state made anew";
      if (!prepare->transition) continue;
      const Order order{prepare->plan, *prepare->transition};
      EXPECT_GT(order.plan.generation.counter, world.planned) << "two plans of one generation";
      world.planned = order.plan.generation.counter;
      check_order(world, order);
      to_ranks(world, {Down::Kind::prepare, world.planned, orders_.number(order)}, &order.plan);
    }
    const Plan* plan = machines_[world.machine].plan() ? &*machines_[world.machine].plan() : nullptr;
    if (const auto* intend = std::get_if<effect::Intend>(&e)) {
      to_ranks(world, {Down::Kind::intend, intend->generation.counter}, plan);
    }
    if (const auto* resume = std::get_if<effect::Resume>(&e)) {
      to_ranks(world, {Down::Kind::resume, resume->generation.counter}, plan);
    }
    if (const auto* k = std::get_if<effect::KillRank>(&e)) {
      ModelNode& node = world.nodes[world.ranks[k->rank.value].node.value];
      if (!node.lost) node.inbox.push_back({Down::Kind::kill, 0, kNothing, k->rank});
    }
    if (const auto* report = std::get_if<effect::Report>(&e)) {
      EXPECT_EQ(report->record.step.value, world.reported + 1) << "a step reported twice or not at all";
      world.reported = static_cast<std::uint32_t>(report->record.step.value);
    }
    if (const auto* stop = std::get_if<effect::Stop>(&e)) {
      EXPECT_NE(stop->why.find("shards are lost"), std::string::npos) << stop->why;
      check_loss(world);
    }
  }
  for (std::uint32_t r = 0; r < world.ranks.size(); ++r) {
    ModelRank& rank = world.ranks[r];
    const bool up = rules_.refill || machines_[world.machine].phase() == JobPhase::starting;
    if (rank.announced || !rank.alive || !up) continue;
    rank.announced = true;
    send(world, rank.node, {.kind = Up::Kind::rank_up, .rank = {r}});
  }
}

bool ChangeModel::can_reach(const World& world, std::uint32_t rank, std::uint32_t shard, std::uint64_t step) const {
  const ModelRank& r = world.ranks[rank];
  const ModelCopy& copy = r.copies[shard];
  if (copy.version == kNothing) return false;
  return copy.version == step || (r.alive && copy.gradient && copy.version + 1 == step);
}

// Of whom has died since it reported, nothing is asked: its end is on its way.
void ChangeModel::check_order(const World& world, const Order& order) const {
  const std::uint64_t step = order.transition.step.value;
  EXPECT_GE(step, world.reported);
  std::set<std::pair<std::uint32_t, std::uint32_t>> given;  // (rank, shard)
  const auto may_have = [&](std::uint32_t rank, std::uint32_t shard) {
    return !world.ranks[rank].alive || can_reach(world, rank, shard, step) || given.contains({rank, shard});
  };
  for (const ShardMove& move : order.transition.moves) {
    const ModelRank& from = world.ranks[move.from.value];
    EXPECT_TRUE(order.plan.has(move.to));
    EXPECT_NE(order.plan.has(move.from), move.take_over);
    if (!move.take_over) {
      EXPECT_TRUE(may_have(move.from.value, move.shard.value)) << "a source without a copy";
    } else if (!world.nodes[from.node.value].lost) {
      EXPECT_EQ(from.copies[move.shard.value].version, step);
      EXPECT_EQ(from.node, world.ranks[move.to.value].node);
    }
    given.insert({move.to.value, move.shard.value});
  }
  for (const PlanRank& member : order.plan.ranks) {
    const ModelRank& rank = world.ranks[member.rank.value];
    EXPECT_TRUE(!rank.alive || !rank.record || rank.record->step.value <= step) << "a final step is undone";
    for (std::uint32_t s = 0; s < kShards; ++s) {
      if (!order.plan.shards[s].has(member.rank)) continue;
      EXPECT_TRUE(may_have(member.rank.value, s)) << "a holder without a copy";
    }
  }
}

void ChangeModel::check_loss(const World& world) const {
  std::uint64_t newest = world.reported;
  for (const ModelRank& r : world.ranks) {
    if (r.alive && r.record) newest = std::max(newest, r.record->step.value);
  }
  bool lost = false;
  for (std::uint32_t s = 0; s < kShards; ++s) {
    bool held = false;
    for (std::uint32_t r = 0; r < world.ranks.size(); ++r) held |= can_reach(world, r, s, newest);
    lost |= !held;
  }
  EXPECT_TRUE(lost) << "given up though a copy of every shard is left";
}

bool ChangeModel::is_done(const World& world) const {
  const JobMachine& machine = machines_[world.machine];
  return machine.phase() == JobPhase::running && machine.final_step().value == rules_.steps;
}

}  // namespace kintsugi::testing
