// A cluster of hundreds: what one loss, and one newcomer, change of the plan, and what is said about it.
#include "engine/plan/plan_changes.hpp"
#include "tests/engine/control/job_case.hpp"

namespace kintsugi {
namespace {

using namespace job_event;  // NOLINT(google-build-using-namespace)
namespace effect = job_effect;

constexpr std::uint32_t kMembers = 512;

// One cell each.
JobRequest large_request() {
  JobRequest request = testing::job_request(kMembers);
  request.config = testing::small_job(30, kMembers / 16, 16);
  request.config.resilience.replicas = 2;
  request.config.steps = 100;
  return request;
}

class JobScale : public testing::JobCase {
 protected:
  JobScale() : JobCase(large_request()) {
    for (std::uint32_t n = 1; n <= kMembers; ++n) {
      nodes.insert({n});
      feed(NodeReady{{n}, "n" + std::to_string(n), 1, std::to_string(n / 16)});
    }
    all_up();
    change();
    commit();
    before = *machine.plan();
  }
  PlanChanges changes() const { return changes_between(before, *machine.plan()); }

  Plan before;
};

TEST_F(JobScale, one_loss_changes_the_shards_that_were_held_and_one_members_cells) {
  ASSERT_EQ(members().size(), kMembers);
  const RankId lost = before.rank_of({0}, {7});  // of the cheapest stage
  std::uint64_t held = 0;
  for (const ShardHolders& holders : before.shards) held += holders.has(lost) ? 1 : 0;
  lose_node(before.node_of(lost).value);
  change();
  EXPECT_EQ(changes().workers.size(), 1U);
  EXPECT_EQ(changes().shards, held);
  EXPECT_NE(machine.plan()->reason.find("repaired"), std::string::npos) << machine.plan()->reason;
  EXPECT_EQ(machine.plan()->failure_domains(), 2U);
}

TEST_F(JobScale, where_two_cells_would_be_too_much_for_one_member_another_stage_gives_one_away) {
  lose_node(before.node_of(before.rank_of({15}, {7})).value);  // of the dearest stage
  change();
  EXPECT_EQ(changes().workers.size(), 2U) << "who takes the place, and a neighbour of whom it leaves";
  for (const CellBlock& block : machine.plan()->stages[15].blocks) EXPECT_EQ(block.lanes.count(), 1U);
  EXPECT_NE(machine.plan()->reason.find("repaired"), std::string::npos) << machine.plan()->reason;
}

TEST_F(JobScale, the_nodes_of_a_rack_that_are_lost_one_after_the_other_make_one_generation_and_change_as_many_members) {
  const std::uint32_t generation = machine.generation().counter;
  for (std::uint32_t n = 160; n < 176; ++n) {
    lose_node(n);
    EXPECT_EQ(said<effect::Fence>() != nullptr, n == 160);
  }
  change();
  commit();
  EXPECT_EQ(machine.generation().counter, generation + 1);
  EXPECT_LE(changes().workers.size(), 32U);
  EXPECT_EQ(machine.plan()->failure_domains(), 2U) << "no shard had both its copies on the rack";
}

TEST_F(JobScale, a_newcomer_takes_its_part_back_from_whoever_took_it_over) {
  lose_node(before.ranks[200].node.value);
  change();
  commit();
  before = *machine.plan();
  join(900, "new", 1);
  all_up();
  commit(Generation{1, machine.generation().counter + 1});
  change();
  EXPECT_EQ(members().size(), kMembers);
  EXPECT_EQ(changes().workers.size(), 2U);  // itself and whom it relieves
  for (const PlanRank& r : machine.plan()->ranks) EXPECT_EQ(machine.plan()->cells_of(r.rank), 1U);
}

}  // namespace
}  // namespace kintsugi
