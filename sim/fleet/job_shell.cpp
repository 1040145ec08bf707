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
    if (std::holds_alternative<job_effect::Resume>(effect)) index_copies();
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
  const bool resumed = in_force_ && former.generation() == in_force_->generation;
  machine_ = std::make_unique<JobMachine>(std::move(request));
  intended_.reset();
  ++steps_;
  take(machine_->adopt(adoption, now));
  std::map<NodeId, job_event::NodeRestated> restated;
  for (const auto& [id, node] : nodes_) {
    restated[id] = {id, adoption.promised, {}, {}, {}, record_};
    if (resumed) restated[id].in_force = *in_force_;
    for (const RankReport& left : left_[id]) restated[id].gone.push_back(left.rank);
  }
  for (const auto& [rank, node] : living_) restated.at(node).living.push_back({rank, kVariant});
  for (const auto& [rank, node] : starting_) {
    if (restated.contains(node)) restated.at(node).living.push_back({rank, ""});
  }
  const std::map<NodeId, Node> nodes = nodes_;
  for (const auto& [id, node] : nodes) {
    feed(job_event::NodeReady{id, node.name, node.slots, node.rack, true}, now);
    feed(restated.at(id), now);
  }
}

void JobShell::index_copies() {
  in_force_ = std::make_unique<const Plan>(*machine_->plan());
  left_.clear();
  held_first_.assign(machine_->next_rank().value + 1, 0);
  const auto for_each_copy = [&](const auto& visit) {
    for (std::uint32_t s = 0; s < in_force_->shards.size(); ++s) {
      visit(in_force_->shards[s].primary, ShardId{s});
      for (const RankId replica : in_force_->shards[s].replicas) visit(replica, ShardId{s});
    }
  };
  for_each_copy([&](RankId rank, ShardId) { ++held_first_[rank.value + 1]; });
  for (std::size_t r = 1; r < held_first_.size(); ++r) held_first_[r] += held_first_[r - 1];
  held_.resize(held_first_.back());
  std::vector<std::uint32_t> at(held_first_.begin(), held_first_.end() - 1);
  for_each_copy([&](RankId rank, ShardId shard) { held_[at[rank.value]++] = shard; });
}

std::span<const ShardId> JobShell::held_by(RankId rank) const {
  if (rank.value + 1 >= held_first_.size()) return {};
  return std::span(held_).subspan(held_first_[rank.value], held_first_[rank.value + 1] - held_first_[rank.value]);
}

void JobShell::node_ready(NodeId node, const std::string& name, const std::string& rack, std::uint32_t slots,
                          Instant now) {
  nodes_[node] = {name, rack, slots};
  feed(job_event::NodeReady{node, name, slots, rack}, now);
}

void JobShell::node_lost(NodeId node, const std::string& why, Instant now) {
  if (nodes_.erase(node) == 0) return;
  left_.erase(node);
  std::erase_if(living_, [&](const auto& r) { return r.second == node; });
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
    feed(job_event::RankUp{r.rank, kVariant}, now);
  }
}

void JobShell::rank_down(RankId rank, const std::string& why, bool expected, Instant now) {
  starting_.erase(rank);
  const auto found = living_.find(rank);
  if (found != living_.end()) {
    if (!expected) left_[found->second].push_back(inventory(rank, found->second, false));
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
  const std::span<const ShardId> held = held_by(rank);
  report.copies.reserve(held.size());
  for (const ShardId shard : held) {
    const bool bad = corrupt_.contains(rank) && shard == held.front();
    report.copies.push_back({shard, step, step.value, copy_digest(shard, step, bad), false});
  }
  return report;
}

void JobShell::answer_fence(Instant now) {
  const Generation generation = machine_->generation();
  const auto open = [&] { return machine_->phase() == JobPhase::fencing && machine_->generation() == generation; };
  const std::vector<std::pair<RankId, NodeId>> living(living_.begin(), living_.end());
  for (const auto& [rank, node] : living) {
    if (open()) feed(job_event::RankReported{generation, inventory(rank, node, true)}, now);
  }
  std::vector<NodeId> nodes;
  for (const auto& [node, what] : nodes_) nodes.push_back(node);
  for (const NodeId node : nodes) {
    if (!open()) return;
    const auto left = left_.find(node);
    feed(job_event::NodeReported{node, generation, left == left_.end() ? std::vector<RankReport>{} : left->second},
         now);
  }
}

void JobShell::all_prepared(Instant now) {
  const Plan plan = *machine_->plan();
  const Digest digest = plan.digest();
  for (const PlanRank& r : plan.ranks) {
    if (machine_->phase() != JobPhase::preparing || machine_->generation() != plan.generation) return;
    feed(job_event::RankPrepared{r.rank, plan.generation, digest, machine_->final_step()}, now);
  }
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
  for (const auto& [rank, on] : living_) {
    if (on == node) return rank;
  }
  return {};
}

}  // namespace kintsugi::sim
