#include "sim/fleet/job_shell.hpp"

#include <algorithm>
#include <utility>

namespace kintsugi::sim {

namespace {

Digest copy_digest(ShardId shard, Step step, bool corrupt) {
  return {(std::uint64_t{shard.value} << 1) | (corrupt ? 1 : 0), step.value};
}

constexpr const char* kVariant = "simulated";

}  // namespace

JobShell::JobShell(const Fold& fold, std::uint64_t lineage, std::uint32_t wanted, std::uint32_t nodes, Instant now,
                   EffectHandler handler)
    : handler_(std::move(handler)) {
  JobRequest request;
  request.job = {1};
  request.lineage = {lineage};
  request.config = fold.job;
  request.ranks = wanted;
  request.nodes = nodes;
  request.deadlines = JobDeadlines::from_budget(seconds(600));
  machine_ = std::make_unique<JobMachine>(std::move(request));
  ++steps_;
  take(machine_->start(now));
}

void JobShell::feed(const JobEvent& event, Instant now) {
  ++steps_;
  take(machine_->step(event, now));
}

void JobShell::take(const JobEffects& effects) {
  for (const JobEffect& effect : effects) {
    if (const auto* intend = std::get_if<job_effect::Intend>(&effect)) intended_ = intend->generation;
    if (const auto* start = std::get_if<job_effect::StartRanks>(&effect)) {
      for (const PlanRank& r : start->ranks) starting_[r.rank] = r.node;
    }
    if (const auto* arm = std::get_if<job_effect::ArmDeadline>(&effect)) {
      deadline_number_ = arm->number;
      deadline_at_ = arm->at;
    }
    if (std::holds_alternative<job_effect::Fence>(effect)) intended_.reset();
    if (std::holds_alternative<job_effect::Resume>(effect)) resumed();
    handler_(effect);
  }
}

void JobShell::deadline_passed(Instant now) {
  feed(job_event::DeadlinePassed{deadline_number_}, now);
}

// Members of the generation in force go on under it; one that was fenced and not resumed has none.
void JobShell::adopt(Instant now) {
  const JobMachine& former = *machine_;
  JobRequest request = former.request();
  ++request.epoch;
  Adoption adoption{
      former.generation(), former.next_rank().value, former.incidents(), former.is_pausing(), {}, record_, {}};
  for (const auto& [id, node] : nodes_) adoption.nodes[id] = node.name;
  const bool was_resumed = in_force_ && former.generation() == in_force_->generation;
  machine_ = std::make_unique<JobMachine>(std::move(request));
  intended_.reset();
  ++steps_;
  take(machine_->adopt(adoption, now));
  const std::map<NodeId, Node> nodes = nodes_;
  const std::map<NodeId, RankSet> living_on = living_on_;
  const std::map<NodeId, std::vector<RankReport>> left = left_;
  std::map<NodeId, RankSet> starting_on;
  for (const auto& [rank, node] : starting_) starting_on[node].insert(rank);
  for (const auto& [id, node] : nodes) {
    feed(job_event::NodeReady{id, node.name, node.slots, node.rack, true}, now);
    job_event::NodeRestated restated{id, adoption.promised, {}, {}, {}, record_};
    if (was_resumed) restated.in_force = *in_force_;
    if (const auto at = left.find(id); at != left.end()) {
      for (const RankReport& report : at->second) restated.gone.push_back(report.rank);
    }
    if (const auto at = living_on.find(id); at != living_on.end()) {
      for (const RankId rank : at->second) restated.living.push_back({rank, kVariant});
    }
    for (const RankId rank : starting_on[id]) restated.living.push_back({rank, ""});
    feed(restated, now);
  }
}

void JobShell::resumed() {
  in_force_ = std::make_shared<const Plan>(*machine_->plan());
  left_.clear();
  erase_if(newcomers_, [&](RankId rank) { return in_force_->has(rank); });
}

std::vector<ShardId> JobShell::held_by(RankId rank) const {
  std::vector<ShardId> held;
  for (std::uint32_t s = 0; in_force_ && s < in_force_->shards.size(); ++s) {
    if (in_force_->shards[s].has(rank)) held.push_back({s});
  }
  return held;
}

void JobShell::node_ready(NodeId node, const std::string& name, const std::string& rack, std::uint32_t slots,
                          Instant now) {
  nodes_[node] = {name, rack, slots};
  feed(job_event::NodeReady{node, name, slots, rack}, now);
}

void JobShell::node_lost(NodeId node, const std::string& why, Instant now) {
  if (nodes_.erase(node) == 0) return;
  left_.erase(node);
  for (const RankId rank : std::exchange(living_on_[node], {})) {
    living_.erase(rank);
    newcomers_.erase(rank);
  }
  living_on_.erase(node);
  std::erase_if(starting_, [&](const auto& r) { return r.second == node; });
  feed(job_event::NodeLost{node, why}, now);
}

void JobShell::drain(NodeId node, Instant now) {
  if (nodes_.contains(node)) feed(job_event::DrainNode{node}, now);
}

void JobShell::ranks_up(const std::vector<PlanRank>& ranks, Instant now) {
  for (const PlanRank& r : ranks) {
    if (starting_.erase(r.rank) == 0) continue;  // its node is gone, or it was told to end
    living_[r.rank] = r.node;
    living_on_[r.node].insert(r.rank);
    newcomers_.insert(r.rank);
    feed(job_event::RankUp{r.rank, kVariant}, now);
  }
}

void JobShell::rank_down(RankId rank, const std::string& why, bool expected, Instant now) {
  starting_.erase(rank);
  const auto found = living_.find(rank);
  if (found != living_.end()) {
    if (!expected) left_[found->second].push_back(inventory(rank, found->second, false));
    living_on_[found->second].erase(rank);
    newcomers_.erase(rank);
    living_.erase(found);
  }
  corrupt_.erase(rank);
  feed(job_event::RankDown{rank, why, expected}, now);
}

void JobShell::rank_failed(RankId rank, const std::string& why, Instant now) {
  feed(job_event::RankFailed{rank, machine_->generation(), {ErrorAction::end_generation, why}}, now);
}

RankReport JobShell::inventory(RankId rank, NodeId node, bool alive) const {
  RankReport report{rank, node, alive, {}, record_};
  const Step step = machine_->final_step();
  const std::vector<ShardId> held = held_by(rank);
  report.copies.reserve(held.size());
  for (const ShardId shard : held) {
    const bool bad = corrupt_.contains(rank) && shard == held.front();
    report.copies.push_back({shard, step, step.value, copy_digest(shard, step, bad), false});
  }
  return report;
}

CountedRanks JobShell::as_expected() const {
  const Step step = machine_->final_step();
  auto digests = std::make_shared<std::vector<Digest>>();
  for (std::uint32_t s = 0; s < in_force_->shards.size(); ++s) digests->push_back(copy_digest({s}, step, false));
  return {{}, in_force_, step, step.value, std::move(digests), record_, {}};
}

void JobShell::answer_fence(Instant now) {
  const Generation generation = machine_->generation();
  const auto open = [&] { return machine_->phase() == JobPhase::fencing && machine_->generation() == generation; };
  RankSet named = newcomers_;
  for (const RankId rank : corrupt_) {
    if (living_.contains(rank)) named.insert(rank);
  }
  NodeSet left;
  for (const auto& [node, reports] : left_) left.insert(node);
  if (in_force_) feed(job_event::OthersReported{generation, named, left, as_expected()}, now);
  for (const RankId rank : named) {
    if (open()) feed(job_event::RankReported{generation, inventory(rank, living_.at(rank), true)}, now);
  }
  for (const NodeId node : left) {
    const std::vector<RankReport> reports = left_.at(node);
    if (open()) feed(job_event::NodeReported{node, generation, reports}, now);
  }
  if (in_force_) return;
  std::vector<NodeId> nodes;
  for (const auto& [node, what] : nodes_) nodes.push_back(node);
  for (const NodeId node : nodes) {
    if (open()) feed(job_event::NodeReported{node, generation, {}}, now);
  }
}

void JobShell::all_prepared(Instant now) {
  feed(job_event::OthersPrepared{machine_->generation(), machine_->plan_digest(), machine_->final_step()}, now);
}

void JobShell::commit(bool change, Instant now) {
  if (machine_->phase() != JobPhase::running) return;
  DecisionRecord record;
  record.job = machine_->request().job;
  record.lineage = machine_->request().lineage;
  record.generation = machine_->generation();
  record.step = {machine_->final_step().value + 1};
  record.updates = record.step.value;
  record.failure_domains = static_cast<std::uint16_t>(machine_->request().config.resilience.replicas);
  if (change) record.next_generation = intended_;
  record_ = record;
  feed(job_event::StepFinal{record}, now);
}

std::optional<RankId> JobShell::rank_on(NodeId node) const {
  const auto found = living_on_.find(node);
  if (found == living_on_.end() || found->second.empty()) return {};
  return found->second.front();
}

}  // namespace kintsugi::sim
