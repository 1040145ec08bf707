// Counted and named reports of the same facts are the same cut, the same plan and the same transition.
#include "engine/control/counted_ranks.hpp"

#include "base/philox.hpp"
#include "engine/control/recovery.hpp"
#include "tests/engine/control/job_case.hpp"

namespace kintsugi {
namespace {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : key_(philox_key(seed)) {}
  std::uint32_t below(std::uint64_t n) { return static_cast<std::uint32_t>(philox_u64(key_, ++draws_, 0) % n); }
  bool once_in(std::uint64_t n) { return below(n) == 0; }

 private:
  PhiloxKey key_;
  std::uint64_t draws_ = 0;
};

struct Facts {
  JobConfig job = testing::small_job(3, 8, 2);
  ModelLayout layout{job.model};
  std::vector<RankReport> named, all;  // all: the counted unfolded
  CountedRanks counted;
  std::vector<PlanMember> members;
};

// Ranks of one plan. Some are gone and left memory or not, some differ in a version, a digest or a record, some have sums.
Facts random_facts(Dice& dice) {
  Facts f;
  f.job.resilience.replicas = 1 + dice.below(3);
  const std::uint32_t ranks = 3 + dice.below(6), nodes = 1 + dice.below(ranks);
  f.counted.plan = std::make_shared<const Plan>(testing::plan_for(f.job, ranks, nodes));
  f.counted.version = f.counted.under_way = {7};
  ++f.counted.under_way.value;
  f.counted.updates = 7;
  auto digests = std::make_shared<std::vector<Digest>>();
  for (std::uint32_t s = 0; s < f.layout.shards().size(); ++s) digests->push_back({s, 7});
  f.counted.digests = digests;
  if (dice.once_in(2)) f.counted.record = DecisionRecord{{1}, {1}, {1, 1}, {7}};
  CountedRanks everybody = f.counted;
  for (const PlanRank& r : f.counted.plan->ranks) everybody.ranks.insert(r.rank);
  for (RankReport& report : unfold(everybody)) {
    const bool stays = !dice.once_in(4);
    if (stays && !dice.once_in(3)) {
      f.counted.ranks.insert(report.rank);
      continue;
    }
    if (!stays && dice.once_in(2)) continue;  // lost with its node
    report.alive = stays;
    if (dice.once_in(3)) report.record.reset();
    if (dice.once_in(3)) report.record = DecisionRecord{{1}, {1}, {1, 1}, {8}};
    for (CopyReport& copy : report.copies) {
      if (dice.once_in(6)) copy.digest.high += 100;
      if (dice.once_in(4)) copy.version.value += dice.once_in(2) ? 1 : -1;
      copy.has_next_gradient = dice.once_in(2);
    }
    if (dice.once_in(3) && !report.copies.empty()) report.copies.pop_back();
    f.named.push_back(report);
  }
  const LaneTree tree(f.counted.plan->lanes);
  for (const StagePlan& stage : f.counted.plan->stages) {
    for (const CellBlock& block : stage.blocks) {
      if (!f.counted.ranks.contains(block.rank) || dice.once_in(2)) continue;
      f.counted.begun.push_back({block.lanes.first});
      for (const TreeNode node : tree.maximal_subtrees(block.lanes.first, block.lanes.end)) {
        f.counted.sums.push_back({{{stage.layers.first}, node}, block.rank});
      }
    }
  }
  f.all = f.named;
  for (RankReport& report : unfold(f.counted)) f.all.push_back(std::move(report));
  std::sort(f.all.begin(), f.all.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  for (const RankReport& report : f.all) {
    if (report.alive) f.members.push_back({report.rank, report.node});
  }
  return f;
}

TEST(CountedRanks, give_the_cut_the_plan_and_the_transition_of_their_single_reports) {
  Dice dice(3);
  int cuts = 0, transitions = 0, disagreements = 0;
  for (int round = 0; round < 3'000; ++round) {
    const Facts f = random_facts(dice);
    const auto shards = static_cast<std::uint32_t>(f.layout.shards().size());
    const Reports some(f.named, &f.counted), all(f.all);
    const Cut cut = decide_cut(some, std::nullopt, shards), wanted = decide_cut(all, std::nullopt, shards);
    ASSERT_EQ(cut.step, wanted.step);
    ASSERT_EQ(cut.updates, wanted.updates);
    ASSERT_EQ(cut.record, wanted.record);
    ASSERT_EQ(cut.holders, wanted.holders);
    ASSERT_EQ(cut.lost, wanted.lost);
    ASSERT_EQ(cut.disagreements.size(), wanted.disagreements.size());
    disagreements += cut.disagreements.empty() ? 0 : 1;
    ++cuts;
    if (f.members.empty()) continue;
    PlanRequest request{{1}, {1}, {1, 2}, f.members};
    request.copies = reachable_copies(cut, some, f.members);
    ASSERT_EQ(request.copies, reachable_copies(cut, all, f.members));
    const bool out_of_reach =
        std::any_of(request.copies.begin(), request.copies.end(), [](const FewRanks& c) { return c.empty(); });
    if (!cut.lost.empty() || out_of_reach) continue;
    request.in_force = f.counted.plan.get();
    const Plan plan = make_plan(request, f.job, f.layout).value();
    const StepUnderWay interrupted{*f.counted.plan, {7}, {}};
    ASSERT_EQ(plan_transition(plan, cut, some, interrupted), plan_transition(plan, cut, all, interrupted));
    ++transitions;
  }
  EXPECT_GT(transitions, cuts / 10);
  EXPECT_GT(disagreements, 50);
}

// The machine, under every split of its members into named and counted ones, and counted ones in one event or two.
JobRequest request_of_five() {
  JobRequest request = testing::job_request(5);
  request.config = testing::small_job(2, 8, 1);
  request.config.resilience.replicas = 2;
  request.config.steps = 100;
  return request;
}

class CountedMembers : public testing::JobCase {
 protected:
  CountedMembers() : JobCase(request_of_five()) {}
  CountedRanks as_expected() const {
    auto digests = std::make_shared<std::vector<Digest>>();
    for (std::uint32_t s = 0; s < resumed->shards.size(); ++s) digests->push_back({s, step.value});
    return {{}, std::make_shared<const Plan>(*resumed), step, step.value, digests, known, {}};
  }
};

TEST_F(CountedMembers, whoever_is_named_the_machine_decides_the_same) {
  join(7, "a", 2);
  join(9, "b", 2);
  join(11, "c", 1);
  all_up();
  change();
  commit();
  lose_node(9);
  ASSERT_EQ(machine.phase(), JobPhase::fencing);
  const JobMachine fenced = machine;
  const std::optional<Plan> in_force = resumed;
  answer_fence();
  const JobMachine wanted = machine;
  const auto transition = said<job_effect::Prepare>()->transition;
  prepare_all();
  ASSERT_EQ(machine.phase(), JobPhase::running);
  const std::vector<RankId> living(up.begin(), up.end());
  ASSERT_EQ(living.size(), 3U);
  for (std::uint32_t named = 0; named < 8; ++named) {
    for (const bool is_counted_first : {true, false}) {
      machine = fenced;
      resumed = in_force;
      const Generation g = machine.generation();
      RankSet but;
      for (std::uint32_t i = 0; i < 3; ++i) {
        if ((named >> i) % 2 == 1) but.insert(living[i]);
      }
      const auto count = [&] { feed(job_event::OthersReported{g, but, {{7}}, as_expected()}); };
      if (is_counted_first) count();
      for (const RankId rank : but) feed(job_event::RankReported{g, report_of(rank)});
      if (!is_counted_first) count();
      ASSERT_EQ(machine.phase(), JobPhase::fencing) << "a node has not answered";
      feed(job_event::NodeReported{{7}, g, {}});
      ASSERT_EQ(machine.phase(), JobPhase::preparing);
      EXPECT_EQ(machine.plan(), wanted.plan());
      EXPECT_EQ(said<job_effect::Prepare>()->transition, transition);
      feed(job_event::OthersPrepared{g, machine.plan_digest(), step, but});
      EXPECT_EQ(machine.phase(), but.empty() ? JobPhase::running : JobPhase::preparing);
      feed(job_event::OthersPrepared{g, machine.plan_digest(), step});
      EXPECT_EQ(machine.phase(), JobPhase::running);
    }
  }
}

TEST_F(CountedMembers, who_is_no_member_of_the_plan_that_is_spoken_of_is_not_counted) {
  join(7, "a", 2);
  join(9, "b", 2);
  join(11, "c", 1);
  all_up();
  change();
  commit();
  lose_node(11);
  change();
  commit();
  join(12, "d", 1);
  all_up();
  commit(Generation{1, machine.generation().counter + 1});
  ASSERT_EQ(machine.phase(), JobPhase::fencing);
  const Generation g = machine.generation();
  feed(job_event::OthersReported{g, {}, {}, as_expected()});
  ASSERT_EQ(machine.phase(), JobPhase::fencing) << "the newcomer has said nothing";
  feed(job_event::RankReported{g, report_of({5})});
  EXPECT_EQ(machine.phase(), JobPhase::preparing);
}

TEST_F(CountedMembers, a_stale_event_changes_nothing) {
  join(7, "a", 2);
  join(9, "b", 2);
  join(11, "c", 1);
  all_up();
  change();
  const std::uint64_t dropped = machine.dropped();
  feed(job_event::OthersReported{machine.generation(), {}, {}, as_expected()});
  feed(job_event::OthersPrepared{machine.generation(), machine.plan_digest(), step});
  EXPECT_EQ(machine.dropped(), dropped + 2);
  commit();
  lose_node(9);
  feed(job_event::OthersReported{{1, 1}, {}, {}, as_expected()});
  EXPECT_EQ(machine.dropped(), dropped + 3);
  EXPECT_EQ(machine.phase(), JobPhase::fencing);
}

}  // namespace
}  // namespace kintsugi
