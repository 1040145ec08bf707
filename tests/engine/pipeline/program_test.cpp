#include "engine/pipeline/program.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "engine/pipeline/rank_memory.hpp"
#include "kernels/cpu/cpu_device.hpp"
#include "tests/engine/plan/plan_cases.hpp"

namespace kintsugi {
namespace {

using testing::plan_for;
using testing::small_job;

TEST(Program, the_ranks_together_run_every_layer_of_every_microbatch_forward_and_backward_once) {
  const JobConfig job = small_job(4, 8, 2, 3);
  const ModelLayout layout(job.model);
  for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
    const Plan plan = plan_for(job, ranks);
    std::map<std::pair<std::uint32_t, std::uint32_t>, int> forward, backward;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      for (const Instruction& i : compile_program(plan, Redo(plan), layout, job, {r}).instructions) {
        if (i.op == Opcode::forward) ++forward[{i.layer.value, i.microbatch}];
        if (i.op == Opcode::backward) ++backward[{i.layer.value, i.microbatch}];
      }
    }
    EXPECT_EQ(forward.size(), layout.layer_count() * 24U);
    EXPECT_EQ(backward.size(), layout.layer_count() * 24U);
    for (const auto& [what, times] : forward) EXPECT_EQ(times, 1);
    for (const auto& [what, times] : backward) EXPECT_EQ(times, 1);
  }
}

TEST(Program, sends_and_receives_pair_up) {
  const JobConfig job = small_job(4, 6, 4, 2);
  const ModelLayout layout(job.model);
  for (std::uint32_t ranks = 1; ranks <= 12; ++ranks) {
    const Plan plan = plan_for(job, ranks);
    std::multiset<std::tuple<Opcode, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>> sent, received;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      for (const Instruction& i : compile_program(plan, Redo(plan), layout, job, {r}).instructions) {
        const std::uint32_t s = i.stage.value, m = i.microbatch, p = i.peer.value;
        if (i.op == Opcode::send_activation) sent.emplace(i.op, s, m, r, p);
        if (i.op == Opcode::send_gradient) sent.emplace(i.op, s - 1, m, r, p);
        if (i.op == Opcode::receive_activation) received.emplace(Opcode::send_activation, s - 1, m, p, r);
        if (i.op == Opcode::receive_gradient) received.emplace(Opcode::send_gradient, s, m, p, r);
      }
    }
    EXPECT_EQ(sent, received);
  }
}

// Ranks hold replicas for one another: were one to wait for a gradient before it had sent its own, both would wait.
TEST(Program, every_replica_is_sent_its_gradient_and_nobody_waits_for_one_before_all_its_own_are_sent) {
  const JobConfig job = small_job(4, 6, 2, 2);
  const ModelLayout layout(job.model);
  for (std::uint32_t ranks = 1; ranks <= 6; ++ranks) {
    const Plan plan = plan_for(job, ranks, ranks);
    std::set<std::pair<ShardId, RankId>> received;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const RankProgram program = compile_program(plan, Redo(plan), layout, job, {r});
      const auto first = std::find_if(program.instructions.begin(), program.instructions.end(),
                                      [](const Instruction& i) { return i.op == Opcode::receive_reduced; });
      for (auto i = first; i != program.instructions.end(); ++i) {
        ASSERT_EQ(i->op, Opcode::receive_reduced);
        EXPECT_EQ(i->peer, plan.primary_of(i->shard));
        received.emplace(i->shard, RankId{r});
      }
    }
    std::set<std::pair<ShardId, RankId>> held;
    for (std::uint32_t s = 0; s < plan.shards.size(); ++s) {
      for (const RankId replica : plan.shards[s].replicas) held.emplace(ShardId{s}, replica);
    }
    EXPECT_EQ(received, held);
    EXPECT_EQ(held.size(), ranks > 1 ? plan.shards.size() : 0);
  }
}

// The arena begins at 0 here and local memory beyond it.
TEST(Program, what_a_replica_takes_lies_where_peers_may_read) {
  const JobConfig job = small_job(4, 6, 2, 2);
  const ModelLayout layout(job.model);
  const auto device = kernels::cpu::make_cpu_device(1);
  constexpr std::uintptr_t kLocal = std::uintptr_t{1} << 40;
  for (std::uint32_t ranks = 2; ranks <= 5; ++ranks) {
    const Plan plan = plan_for(job, ranks, ranks);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const RankProgram program = compile_program(plan, Redo(plan), layout, job, {r});
      const LayerPrograms layers = make_layer_programs(program, layout, job, device->ops());
      const RankMemory memory = lay_out_memory(program, layout, job, layers, {}, {kLocal});
      for (const ShardId shard : program.shards) EXPECT_LT(memory.reduced.at(shard).data.value, kLocal);
      for (const ShardId shard : program.replicas) EXPECT_GE(memory.reduced.at(shard).data.value, kLocal);
      EXPECT_LT(memory.arena_bytes, kLocal);
    }
  }
}

TEST(Program, partial_sums_follow_the_lane_tree_and_few_are_alive_at_once) {
  for (const std::int64_t lanes : {1, 2, 5, 8, 13}) {
    const JobConfig job = small_job(2, lanes, 1, 2);
    const ModelLayout layout(job.model);
    for (std::uint32_t ranks = 1; ranks <= lanes; ++ranks) {
      const Plan plan = plan_for(job, ranks);
      std::vector<TreeNode> nodes;
      for (const Partial& p : partials_of_layer(plan, Redo(plan), {1})) nodes.push_back(p.node);
      EXPECT_NO_FATAL_FAILURE(static_cast<void>(LaneTree(plan.lanes).merges_after(nodes)));
      for (std::uint32_t r = 0; r < ranks; ++r) {
        const RankProgram program = compile_program(plan, Redo(plan), layout, job, {r});
        const std::uint32_t count = program.stages[0].lanes.count();
        // A run of lanes that starts anywhere climbs the tree and comes down again: at most twice the logarithm.
        EXPECT_LE(program.stages[0].gradient_buffers, 2 * static_cast<std::uint32_t>(std::bit_width(count)));
        if (program.stages[0].lanes.first == 0) {
          EXPECT_LE(program.stages[0].gradient_buffers, static_cast<std::uint32_t>(std::bit_width(count)));
        }
      }
    }
  }
}

// Replays the buffers symbolically: every sent partial is the canonical sum of its lanes, in order.
TEST(Program, what_is_sent_is_the_canonical_sum_of_its_node) {
  const JobConfig job = small_job(2, 13, 1, 2);
  const ModelLayout layout(job.model);
  const LaneTree tree(13);
  const auto canonical = [&](const auto& self, TreeNode n) -> std::string {
    if (n.count == 1) return std::to_string(2 * n.first) + "," + std::to_string(2 * n.first + 1);
    return "(" + self(self, tree.left(n)) + "+" + self(self, tree.right(n)) + ")";
  };
  for (std::uint32_t ranks = 1; ranks <= 13; ++ranks) {
    const Plan plan = plan_for(job, ranks);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      std::map<std::uint32_t, std::string> buffers;
      for (const Instruction& i : compile_program(plan, Redo(plan), layout, job, {r}).instructions) {
        if (i.layer.value != 1) continue;
        std::string& sum = buffers[i.buffer];
        if (i.op == Opcode::backward)
          sum = i.accumulate ? sum + "," + std::to_string(i.microbatch) : std::to_string(i.microbatch);
        if (i.op == Opcode::merge_lanes) sum = "(" + sum + "+" + buffers[i.source] + ")";
        if (i.op != Opcode::send_partial) continue;
        EXPECT_EQ(sum, canonical(canonical, i.node));
      }
    }
  }
}

// Of two stages, rank 0 keeps lanes 0 to 3 of the first and lanes 0 and 1 of the second: lanes 2 and 3 go through both
// and come back through one.
TEST(Program, what_is_kept_is_sent_first_and_only_what_is_lost_is_run) {
  const JobConfig job = small_job(4, 8, 2, 2);
  const ModelLayout layout(job.model);
  for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
    const Plan plan = plan_for(job, ranks);
    std::vector<KeptSum> kept;
    for (std::uint32_t l = 0; l < layout.layer_count(); ++l) {
      kept.push_back({{{l}, {0, plan.stage_of({l}) == StageId{0} ? 4U : 2U}}, {0}});
    }
    const Redo redo(plan, kept);
    std::map<std::pair<std::uint32_t, std::uint32_t>, int> forward, backward;
    std::multiset<std::pair<LayerId, TreeNode>> sent;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const RankProgram program = compile_program(plan, redo, layout, job, {r});
      std::set<GroupId> fetched;
      for (const Instruction& i : program.instructions) {
        if (i.op == Opcode::forward) ++forward[{i.layer.value, i.microbatch}];
        if (i.op == Opcode::backward) ++backward[{i.layer.value, i.microbatch}];
        if (i.op == Opcode::send_kept || i.op == Opcode::send_partial) sent.emplace(i.layer, i.node);
        if (i.op != Opcode::fetch_weights) continue;
        EXPECT_TRUE(fetched.insert(i.group).second);
      }
      EXPECT_EQ(fetched.size(), program.groups.size()) << "what is published must be taken";
    }
    for (std::uint32_t l = 0; l < layout.layer_count(); ++l) {
      const bool upper = plan.stage_of({l}) == StageId{1};
      for (std::uint32_t m = 0; m < 16; ++m) {
        EXPECT_EQ((forward[{l, m}]), m >= 4 ? 1 : 0);
        EXPECT_EQ((backward[{l, m}]), m >= (upper ? 4U : 8U) ? 1 : 0);
      }
      std::vector<TreeNode> nodes;
      for (const Partial& p : partials_of_layer(plan, redo, {l})) nodes.push_back(p.node);
      EXPECT_NO_FATAL_FAILURE(static_cast<void>(LaneTree(plan.lanes).merges_after(nodes)));
      for (const TreeNode node : nodes) EXPECT_EQ(sent.count({{l}, node}), 1U);
    }
  }
}

TEST(Program, a_tied_table_is_fetched_once_and_reduced_after_both_uses) {
  const JobConfig job = small_job(4, 4, 2);
  const ModelLayout layout(job.model);
  const Plan plan = plan_for(job, 1);
  const RankProgram program = compile_program(plan, Redo(plan), layout, job, {0});
  int fetched = 0;
  for (const Instruction& i : program.instructions)
    fetched += i.op == Opcode::fetch_weights && i.group.value == 0 ? 1 : 0;
  EXPECT_EQ(fetched, 1);
  const auto last_backward = std::find_if(program.instructions.rbegin(), program.instructions.rend(),
                                          [](const Instruction& i) { return i.op == Opcode::backward; });
  EXPECT_TRUE(std::all_of(program.instructions.rbegin(), last_backward, [](const Instruction& i) {
    return i.op == Opcode::reduce_group || i.op == Opcode::send_partial || i.op == Opcode::merge_lanes;
  }));
}

}  // namespace
}  // namespace kintsugi
