// A job's machine and ranks that do what they are told: what the tests of the machine start from.
#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/control/job_machine.hpp"
#include "tests/engine/plan/plan_cases.hpp"

namespace kintsugi::testing {

template <class T>
const T* find(const JobEffects& effects) {
  for (const JobEffect& e : effects) {
    if (const T* found = std::get_if<T>(&e)) return found;
  }
  return nullptr;
}

inline JobRequest job_request(std::uint32_t ranks, bool save = false) {
  JobRequest request{{1}, {1}, 1, small_job(2, 4, 1), ranks, 0, save, JobDeadlines::from_budget(seconds(10))};
  request.config.steps = 100;
  request.config.resilience.replicas = 2;
  return request;
}

class JobCase : public ::testing::Test {
 protected:
  explicit JobCase(JobRequest request = job_request(4)) : machine(std::move(request)) { last = machine.start(now); }

  void feed(const JobEvent& event) {
    last = machine.step(event, now);
    for (const JobEffect& e : last) {
      if (const auto* armed = std::get_if<job_effect::ArmDeadline>(&e)) deadline = armed->number;
      if (const auto* start = std::get_if<job_effect::StartRanks>(&e)) {
        for (const PlanRank& r : start->ranks) starting[r.rank] = node_of[r.rank] = r.node;
      }
      if (const auto* resume = std::get_if<job_effect::Resume>(&e)) {
        EXPECT_EQ(resume->generation, machine.generation());
        resumed = machine.plan();
      }
    }
  }
  template <class T>
  const T* said() const {
    return find<T>(last);
  }

  void join(std::uint32_t node, const std::string& name, std::uint32_t slots) {
    nodes.insert({node});
    feed(job_event::NodeReady{{node}, name, slots});
  }
  void rank_up(std::uint32_t rank, const std::string& variant = "cpu") {
    starting.erase({rank});
    up.insert({rank});
    feed(job_event::RankUp{{rank}, variant});
  }
  void all_up() {
    while (!starting.empty()) rank_up(starting.begin()->first.value);
  }
  // Every shard that the rank has under the plan in force, at the step that is final.
  RankReport report_of(RankId rank) const {
    RankReport report{rank, node_of.at(rank), true, {}, known};
    for (std::uint32_t s = 0; resumed && s < resumed->shards.size(); ++s) {
      if (resumed->shards[s].has(rank)) report.copies.push_back({{s}, step, step.value, {s, step.value}});
    }
    return report;
  }
  void answer_fence() {
    const Generation g = machine.generation();
    for (const RankId rank : std::set<RankId>(up)) feed(job_event::RankReported{g, report_of(rank)});
    for (const NodeId node : std::set<NodeId>(nodes)) {
      std::vector<RankReport> left;
      for (const auto& [rank, report] : left_behind) {
        if (report.node == node) left.push_back(report);
      }
      feed(job_event::NodeReported{node, g, left});
    }
  }
  void prepare_all() {
    const Plan plan = *machine.plan();
    for (const PlanRank& r : plan.ranks) {
      feed(job_event::RankPrepared{r.rank, machine.generation(), plan.digest(), step});
    }
  }
  void change() {
    answer_fence();
    ASSERT_EQ(machine.phase(), JobPhase::preparing);
    prepare_all();
    ASSERT_EQ(machine.phase(), JobPhase::running);
  }
  void run() {
    join(7, "a", 2);
    join(9, "b", 2);
    all_up();
    change();
  }
  DecisionRecord record(std::uint64_t at) const {
    DecisionRecord r{{1}, {1}, machine.plan()->generation, {at}};
    r.updates = at;
    return r;
  }
  void commit(std::optional<Generation> next = std::nullopt) {
    known = record(step.value + 1);
    known->next_generation = next;
    step = known->step;
    feed(job_event::StepFinal{*known});
  }
  void kill(std::uint32_t rank, const std::string& why = "was killed by signal 9 (Killed)") {
    if (up.erase({rank}) > 0) {
      left_behind[{rank}] = report_of({rank});
      left_behind[{rank}].record.reset();
    }
    starting.erase({rank});
    feed(job_event::RankDown{{rank}, why});
  }
  void lose_node(std::uint32_t node) {
    nodes.erase({node});
    std::erase_if(up, [&](RankId r) { return node_of[r] == NodeId{node}; });
    std::erase_if(left_behind, [&](const auto& left) { return left.second.node == NodeId{node}; });
    feed(job_event::NodeLost{{node}, "connection reset"});
  }
  void all_down() {
    for (const auto& [rank, node] : node_of) feed(job_event::RankDown{rank, "exited with code 0", true});
  }
  void finish_all() {
    const std::vector<PlanRank> ranks = machine.plan()->ranks;
    for (const PlanRank& r : ranks) {
      feed(job_event::RankFinished{r.rank, machine.generation(), step, {5, 5}});
    }
  }
  static std::set<RankId> ranks(std::initializer_list<std::uint32_t> ids) {
    std::set<RankId> set;
    for (const std::uint32_t id : ids) set.insert({id});
    return set;
  }
  std::set<RankId> members() const {
    std::set<RankId> ranks;
    for (const PlanRank& r : machine.plan()->ranks) ranks.insert(r.rank);
    return ranks;
  }

  Instant now{1000};
  JobMachine machine;
  JobEffects last;
  std::uint64_t deadline = 1;
  std::set<NodeId> nodes;
  std::map<RankId, NodeId> starting, node_of;
  std::set<RankId> up;
  std::map<RankId, RankReport> left_behind;
  std::optional<Plan> resumed;
  std::optional<DecisionRecord> known;
  Step step;
};

}  // namespace kintsugi::testing
