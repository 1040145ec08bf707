#include "bench/control/fleet.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

namespace kintsugi::bench {

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

JobConfig fleet_job(const FleetShape& shape) {
  constexpr std::int64_t kBlocks = 126, kHeadWidth = 128;
  // Blocks of 12 width^2 parameters; at least 16 shards each.
  const std::int64_t blocks = std::min<std::int64_t>(kBlocks, std::max(2 * shape.members / 16, shape.stages));
  const double elements = 2.0 * shape.members / static_cast<double>(blocks) * static_cast<double>(kMaxShardElements);
  const auto heads =
      std::max<std::int64_t>(1, std::lround(std::sqrt(elements / 12.0) / static_cast<double>(kHeadWidth)));
  const std::int64_t width = heads * kHeadWidth, lanes = shape.members / shape.stages * shape.lanes_of_member;
  JobConfig job;
  job.name = "fleet";
  job.model = {.family = ModelFamily::gpt2,
               .layers = blocks,
               .width = width,
               .heads = heads,
               .kv_heads = heads,
               .hidden = 4 * width,
               .context = 8192,
               .vocabulary = 50257,
               .tied = false};
  job.batch = {.sequences = lanes, .microbatch = 1, .lanes = lanes, .length = 8192};
  job.parallel.stages = shape.stages;
  job.resilience.replicas = 2;
  job.steps = 1'000'000;
  return job;
}

Fleet::Fleet(const FleetShape& shape, JobConfig job)
    : shape_(shape),
      machine_(
          JobRequest{{1}, {1}, 1, std::move(job), shape.members, 0, false, JobDeadlines::from_budget(seconds(600))}) {
  carry_out(machine_.start({1}));
}

void Fleet::feed(const std::vector<JobEvent>& events) {
  received_ += events.size();
  const double began = cpu_seconds();
  for (const JobEvent& event : events) carry_out(machine_.step(event, {1000}));
  spent_ += cpu_seconds() - began;
}

void Fleet::carry_out(const JobEffects& effects) {
  for (const JobEffect& e : effects) {
    if (const auto* start = std::get_if<job_effect::StartRanks>(&e)) starting_ = start->ranks;
    const bool to_all = std::holds_alternative<job_effect::Fence>(e) ||
                        std::holds_alternative<job_effect::Prepare>(e) || std::holds_alternative<job_effect::Resume>(e);
    if (to_all) sent_ += nodes_.size();
  }
}

std::vector<RankReport> Fleet::write_reports() const {
  std::vector<RankReport> reports;
  if (!resumed_) {
    for (const PlanRank& r : starting_) reports.push_back({r.rank, r.node});
    return reports;
  }
  const Plan& plan = *resumed_;
  const std::uint64_t step = known_ ? known_->step.value : 0;
  for (const PlanRank& r : plan.ranks) {
    RankReport& report = reports.emplace_back(RankReport{r.rank, r.node, true, {}, known_});
    report.sums.step = {step + 1};
  }
  const auto report_of = [&](RankId rank) -> RankReport& {
    return *std::lower_bound(reports.begin(), reports.end(), rank,
                             [](const RankReport& report, RankId r) { return report.rank < r; });
  };
  for (std::uint32_t s = 0; s < plan.shards.size(); ++s) {
    const CopyReport copy{{s}, {step}, step, {s, step}};
    report_of(plan.shards[s].primary).copies.push_back(copy);
    for (const RankId replica : plan.shards[s].replicas) report_of(replica).copies.push_back(copy);
  }
  const LaneTree tree(plan.lanes);
  for (const StagePlan& stage : plan.stages) {
    for (const CellBlock& block : stage.blocks) {
      SumReport& sums = report_of(block.rank).sums;
      for (std::uint32_t lane = block.lanes.first; lane < block.lanes.end; ++lane) sums.begun.push_back({lane});
      if (block.rank.value % 2 == 0) continue;
      for (const TreeNode node : tree.maximal_subtrees(block.lanes.first, block.lanes.end)) {
        for (std::uint32_t l = stage.layers.first; l < stage.layers.end; ++l) sums.sums.push_back({{l}, node});
      }
    }
  }
  std::erase_if(reports, [&](const RankReport& report) { return !nodes_.contains(report.node); });
  return reports;
}

void Fleet::answer_fence(Cost& cost) {
  const Generation g = machine_.generation();
  reports_ = write_reports();
  std::vector<JobEvent> events;
  for (const RankReport& report : reports_) events.emplace_back(job_event::RankReported{g, report});
  for (const NodeId node : nodes_) events.emplace_back(job_event::NodeReported{node, g, {}});
  const JobEvent last = events.back();
  events.pop_back();
  double began = spent_;
  feed(events);
  cost.reports = spent_ - began;
  began = spent_;
  feed({last});
  cost.decide = spent_ - began;
}

void Fleet::prepare_all(Cost& cost) {
  const Digest digest = machine_.plan()->digest();
  const Step step = machine_.final_step();
  std::vector<JobEvent> events;
  for (const PlanRank& r : machine_.plan()->ranks) {
    events.emplace_back(job_event::RankPrepared{r.rank, machine_.generation(), digest, step});
  }
  const double began = spent_;
  feed(events);
  KINTSUGI_ASSERT(machine_.phase() == JobPhase::running);
  resumed_ = machine_.plan();
  cost.prepared = spent_ - began;
}

void Fleet::commit() {
  DecisionRecord record{{1}, {1}, machine_.plan()->generation, {machine_.final_step().value + 1}};
  record.updates = record.step.value;
  known_ = record;
  feed({job_event::StepFinal{record}});
}

void Fleet::start() {
  for (std::uint32_t n = 1; n <= shape_.members; ++n) {
    nodes_.insert({n});
    feed({job_event::NodeReady{{n}, std::to_string(n), 1, std::to_string(n / shape_.nodes_of_rack)}});
  }
  const std::vector<PlanRank> ranks = starting_;
  for (const PlanRank& r : ranks) feed({job_event::RankUp{r.rank, "one kind"}});
  Cost cost;
  answer_fence(cost);
  prepare_all(cost);
  commit();
}

Fleet::Cost Fleet::lose(const std::vector<NodeId>& nodes) {
  Cost cost;
  spent_ = 0;
  sent_ = received_ = 0;
  for (const NodeId node : nodes) {
    nodes_.erase(node);
    feed({job_event::NodeLost{node, "connection reset"}});
  }
  cost.lost = spent_;
  answer_fence(cost);
  prepare_all(cost);
  commit();
  cost.total = spent_;
  cost.messages_in = received_;
  cost.messages_out = sent_;
  return cost;
}

}  // namespace kintsugi::bench
