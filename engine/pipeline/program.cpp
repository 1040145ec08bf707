#include "engine/pipeline/program.hpp"

#include <algorithm>
#include <optional>
#include <set>

namespace kintsugi {

namespace {

// How one rank sums its lanes of one stage: which buffer each lane's gradient starts in, what is added when the lane
// ends, and which maximal subtree is then complete. A function of the lanes alone, so the receiver derives it too.
struct LaneStep {
  std::uint32_t buffer = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> merges;  // buffer += source, in order
  std::optional<Partial> complete;
};

struct LanePlan {
  std::vector<LaneStep> lanes;
  std::uint32_t buffers = 0;
};

LanePlan plan_lanes(const LaneTree& tree, RankId rank, LaneRange range) {
  const std::vector<TreeNode> maximal = tree.maximal_subtrees(range.first, range.end);
  LanePlan plan;
  std::set<std::uint32_t> free;
  std::vector<std::pair<TreeNode, std::uint32_t>> stack;  // partial sums not yet maximal, with their buffers
  for (std::uint32_t lane = range.first; lane < range.end; ++lane) {
    if (free.empty()) free.insert(plan.buffers++);
    LaneStep step;
    step.buffer = *free.begin();
    free.erase(free.begin());
    stack.push_back({{lane, 1}, step.buffer});
    const auto is_maximal = [&] {
      return std::find(maximal.begin(), maximal.end(), stack.back().first) != maximal.end();
    };
    while (!is_maximal() && stack.size() > 1 &&
           tree.parent(stack.back().first) == tree.parent(stack[stack.size() - 2].first)) {
      const auto [right, source] = stack.back();
      stack.pop_back();
      step.merges.emplace_back(stack.back().second, source);
      stack.back().first = tree.parent(right);
      free.insert(source);
    }
    if (is_maximal()) {
      step.complete = Partial{rank, stack.back().first, stack.back().second};
      stack.pop_back();  // its buffer stays taken until the step is final
    }
    plan.lanes.push_back(std::move(step));
  }
  KINTSUGI_ASSERT(stack.empty());
  return plan;
}

class Compiler {
 public:
  Compiler(const Plan& plan, const ModelLayout& layout, const JobConfig& job, RankId rank)
      : plan_(plan),
        layout_(layout),
        job_(job),
        per_lane_(static_cast<std::uint32_t>(job.batch.microbatches_per_lane())) {
    out_.rank = rank;
    out_.microbatches = plan.lanes * per_lane_;
  }

  RankProgram run() {
    collect_stages();
    for (const PipelineTask& task : rank_tasks(plan_, out_.rank, job_.parallel.schedule, per_lane_)) {
      if (task.phase == PipelinePhase::forward)
        forward(task);
      else
        backward(task);
    }
    reduce();
    receive_reduced();
    return std::move(out_);
  }

 private:
  struct StageState {
    LanePlan lanes;
    std::set<std::uint32_t> free_slots;
    std::vector<std::uint32_t> slot_of;  // by microbatch of the step; valid between forward and backward
  };

  void collect_stages() {
    const LaneTree tree(plan_.lanes);
    std::set<GroupId> groups;
    for (std::uint32_t s = 0; s < plan_.stages.size(); ++s) {
      const LaneRange lanes = plan_.lanes_of({s}, out_.rank);
      states_.emplace_back();
      if (lanes.count() == 0) continue;
      StageState& state = states_.back();
      state.lanes = plan_lanes(tree, out_.rank, lanes);
      state.slot_of.assign(out_.microbatches, UINT32_MAX);
      const LayerRange layers = plan_.stages[s].layers;
      out_.stages.push_back({{s}, layers, lanes, 0, state.lanes.buffers});
      for (std::uint32_t l = layers.first; l < layers.end; ++l) {
        for (const GroupId g : layout_.groups_used_by({l})) groups.insert(g);
      }
    }
    out_.groups.assign(groups.begin(), groups.end());
    collect_shards();
  }

  void collect_shards() {
    std::set<GroupId> shipped;  // with a reduced gradient that replicas take from here
    for (const Shard& shard : layout_.shards()) {
      const ShardHolders& holders = plan_.shards[shard.id.value];
      if (holders.primary == out_.rank) {
        out_.shards.push_back(shard.id);
        if (!holders.replicas.empty()) shipped.insert(shard.group);
      } else if (holders.has(out_.rank)) {
        out_.replicas.push_back(shard.id);
      }
    }
    for (const GroupId g : out_.groups) {
      const bool shared = ranks_using(plan_, layout_.group(g)).size() > 1;
      if (shared) out_.lent_weights.push_back(g);
      if (shared || shipped.contains(g)) out_.lent_gradients.push_back(g);
    }
  }

  StageWork& work(StageId stage) {
    for (StageWork& w : out_.stages) {
      if (w.stage == stage) return w;
    }
    KINTSUGI_UNREACHABLE();
  }

  LaneId lane_of(std::uint32_t microbatch) const { return {microbatch / per_lane_}; }

  void fetch(LayerId layer) {
    for (const GroupId g : layout_.groups_used_by(layer)) {
      if (fetched_.insert(g).second) out_.instructions.push_back({.op = Opcode::fetch_weights, .group = g});
    }
  }

  // The stage before frees its slot only at its own backward, which comes after this stage's.
  std::uint32_t input_slot(const PipelineTask& task) const {
    const std::uint32_t s = task.stage.value;
    if (s == 0 || plan_.rank_of({s - 1}, lane_of(task.microbatch)) != out_.rank) return kOwnSlot;
    return states_[s - 1].slot_of[task.microbatch];
  }

  void forward(const PipelineTask& task) {
    const std::uint32_t s = task.stage.value;
    StageWork& stage = work(task.stage);
    StageState& state = states_[s];
    if (state.free_slots.empty()) state.free_slots.insert(stage.slots++);
    const std::uint32_t slot = *state.free_slots.begin();
    state.free_slots.erase(state.free_slots.begin());
    state.slot_of[task.microbatch] = slot;
    const Instruction base{.stage = task.stage, .microbatch = task.microbatch, .slot = slot};

    if (s == 0) {
      push(base, Opcode::load_tokens);
    } else if (const RankId from = plan_.rank_of({s - 1}, lane_of(task.microbatch)); from != out_.rank) {
      push(base, Opcode::receive_activation).peer = from;
    }
    for (std::uint32_t l = stage.layers.first; l < stage.layers.end; ++l) {
      fetch({l});
      Instruction& i = push(base, Opcode::forward);
      i.layer = {l};
      i.source = input_slot(task);
    }
    if (s + 1 < plan_.stages.size()) {
      const RankId to = plan_.rank_of({s + 1}, lane_of(task.microbatch));
      if (to != out_.rank) push(base, Opcode::send_activation).peer = to;
    }
  }

  void backward(const PipelineTask& task) {
    const std::uint32_t s = task.stage.value;
    const StageWork stage = work(task.stage);
    StageState& state = states_[s];
    const LaneId lane = lane_of(task.microbatch);
    const LaneStep& lane_step = state.lanes.lanes[lane.value - stage.lanes.first];
    const Instruction base{.stage = task.stage, .microbatch = task.microbatch, .slot = state.slot_of[task.microbatch]};

    if (s + 1 == plan_.stages.size()) {
      push(base, Opcode::load_targets);
    } else if (const RankId from = plan_.rank_of({s + 1}, lane); from != out_.rank) {
      push(base, Opcode::receive_gradient).peer = from;
    }
    const bool lane_ends = (task.microbatch + 1) % per_lane_ == 0;
    for (std::uint32_t l = stage.layers.end; l-- > stage.layers.first;) {
      Instruction& i = push(base, Opcode::backward);
      i.layer = {l};
      i.buffer = lane_step.buffer;
      i.accumulate = task.microbatch % per_lane_ != 0;
      i.source = input_slot(task);
      if (lane_ends) finish_lane(base, {l}, lane_step);
    }
    if (s > 0) {
      const RankId to = plan_.rank_of({s - 1}, lane);
      if (to != out_.rank) push(base, Opcode::send_gradient).peer = to;
    }
    state.free_slots.insert(base.slot);
  }

  void finish_lane(const Instruction& base, LayerId layer, const LaneStep& lane) {
    for (const auto& [buffer, source] : lane.merges) {
      Instruction& i = push(base, Opcode::merge_lanes);
      i.layer = layer;
      i.buffer = buffer;
      i.source = source;
    }
    if (!lane.complete) return;
    Instruction& i = push(base, Opcode::send_partial);
    i.layer = layer;
    i.buffer = lane.complete->buffer;
    i.node = lane.complete->node;
  }

  // In the order in which backward makes gradients final: last layer first; a tied group when its owner is done.
  void reduce() {
    for (auto g = out_.groups.rbegin(); g != out_.groups.rend(); ++g) {
      const bool owns =
          std::any_of(out_.shards.begin(), out_.shards.end(), [&](ShardId s) { return layout_.shard(s).group == *g; });
      if (owns) out_.instructions.push_back({.op = Opcode::reduce_group, .group = *g});
    }
  }

  // After all this rank has to send: ranks that hold replicas for one another then never wait in a circle.
  void receive_reduced() {
    for (const ShardId s : out_.replicas) {
      out_.instructions.push_back({.op = Opcode::receive_reduced, .shard = s, .peer = plan_.primary_of(s)});
    }
  }

  Instruction& push(const Instruction& base, Opcode op) {
    out_.instructions.push_back(base);
    out_.instructions.back().op = op;
    return out_.instructions.back();
  }

  const Plan& plan_;
  const ModelLayout& layout_;
  const JobConfig& job_;
  const std::uint32_t per_lane_;
  RankProgram out_;
  std::vector<StageState> states_;  // by stage
  std::set<GroupId> fetched_;
};

}  // namespace

const StageWork& RankProgram::work(StageId stage) const {
  for (const StageWork& w : stages) {
    if (w.stage == stage) return w;
  }
  KINTSUGI_UNREACHABLE();
}

RankProgram compile_program(const Plan& plan, const ModelLayout& layout, const JobConfig& job, RankId rank) {
  return Compiler(plan, layout, job, rank).run();
}

std::vector<Partial> partials_of_layer(const Plan& plan, LayerId layer) {
  const LaneTree tree(plan.lanes);
  std::vector<Partial> partials;
  for (const CellBlock& block : plan.stages[plan.stage_of(layer).value].blocks) {
    for (const LaneStep& step : plan_lanes(tree, block.rank, block.lanes).lanes) {
      if (step.complete) partials.push_back(*step.complete);
    }
  }
  std::sort(partials.begin(), partials.end(),
            [](const Partial& a, const Partial& b) { return a.node.first < b.node.first; });
  return partials;
}

std::vector<RankId> ranks_using(const Plan& plan, const ParameterGroup& group) {
  std::set<RankId> ranks;
  for (const LayerId use : group.uses) {
    for (const RankId r : plan.ranks_of_layer(use)) ranks.insert(r);
  }
  return {ranks.begin(), ranks.end()};
}

std::uint64_t most_lent_messages(const Plan& plan, const ModelLayout& layout, const JobConfig& job) {
  std::uint64_t partials = 0;  // the most of any layer and rank
  for (const StagePlan& stage : plan.stages) {
    const LaneTree tree(plan.lanes);
    for (const CellBlock& block : stage.blocks) {
      partials = std::max<std::uint64_t>(partials, tree.maximal_subtrees(block.lanes.first, block.lanes.end).size());
    }
  }
  std::uint64_t uses = 1;
  for (const ParameterGroup& group : layout.groups()) uses = std::max<std::uint64_t>(uses, group.uses.size());
  const std::uint64_t shards = layout.shards().size();
  const std::uint64_t microbatches = plan.lanes * static_cast<std::uint64_t>(job.batch.microbatches_per_lane());
  // A step's partial sums, its reduced gradients, the weights of this version and the next, boundary tensors both ways,
  // votes.
  return shards * (uses * partials + 3) + 2 * plan.stages.size() * microbatches + 16;
}

}  // namespace kintsugi
