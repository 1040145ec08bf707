#include "engine/pipeline/program.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace kintsugi {

namespace {

class Compiler {
 public:
  Compiler(const Plan& plan, const Redo& redo, const ModelLayout& layout, const JobConfig& job, RankId rank)
      : plan_(plan),
        redo_(redo),
        layout_(layout),
        job_(job),
        per_lane_(static_cast<std::uint32_t>(job.batch.microbatches_per_lane())) {
    out_.rank = rank;
    out_.alone = plan.rank_count() == 1;
    out_.microbatches = plan.lanes * per_lane_;
    for (const KeptSum& k : redo.kept()) {
      if (k.rank == rank) out_.kept.push_back(k.sum);
    }
  }

  RankProgram run() {
    collect_stages();
    send_kept();
    for (const PipelineTask& task : rank_tasks(plan_, out_.rank, job_.parallel.schedule, per_lane_)) {
      const LaneId lane = lane_of(task.microbatch);
      if (!redo_.runs_forward(lane)) continue;
      if (task.phase == PipelinePhase::forward)
        forward(task);
      else if (redo_.runs_backward(task.stage, lane))
        backward(task);
      else
        let_go(task);
    }
    for (const GroupId g : out_.groups) fetch(g);  // what is published is taken, used or not
    reduce();
    receive_reduced();
    return std::move(out_);
  }

 private:
  struct StageState {
    std::vector<LanePlan> lanes;  // by layer of the stage
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
      state.slot_of.assign(out_.microbatches, UINT32_MAX);
      const LayerRange layers = plan_.stages[s].layers;
      StageWork& work = out_.stages.emplace_back(StageWork{{s}, layers, lanes, 0, 0});
      for (std::uint32_t l = layers.first; l < layers.end; ++l) {
        state.lanes.push_back(plan_lanes(redo_, tree, {s}, {l}, {out_.rank, lanes}));
        work.gradient_buffers = std::max(work.gradient_buffers, state.lanes.back().buffers);
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
      if (ranks_using(plan_, layout_.group(g)).size() > 1) out_.shared_groups.push_back(g);
      if (shipped.contains(g)) out_.shipped_groups.push_back(g);
    }
  }

  StageWork& work(StageId stage) {
    for (StageWork& w : out_.stages) {
      if (w.stage == stage) return w;
    }
    KINTSUGI_UNREACHABLE();
  }

  LaneId lane_of(std::uint32_t microbatch) const { return {microbatch / per_lane_}; }

  void fetch(GroupId group) {
    if (fetched_.insert(group).second) out_.instructions.push_back({.op = Opcode::fetch_weights, .group = group});
  }

  // First of all: they are there.
  void send_kept() {
    for (std::uint32_t at = 0; at < out_.kept.size(); ++at) {
      Instruction& i = push({}, Opcode::send_kept);
      i.layer = out_.kept[at].layer;
      i.node = out_.kept[at].node;
      i.buffer = at;
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
      for (const GroupId g : layout_.groups_used_by({l})) fetch(g);
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
    const Instruction base{.stage = task.stage, .microbatch = task.microbatch, .slot = state.slot_of[task.microbatch]};

    if (s + 1 == plan_.stages.size()) {
      push(base, Opcode::load_targets);
    } else if (const RankId from = plan_.rank_of({s + 1}, lane); from != out_.rank) {
      push(base, Opcode::receive_gradient).peer = from;
    }
    const bool lane_ends = (task.microbatch + 1) % per_lane_ == 0;
    for (std::uint32_t l = stage.layers.end; l-- > stage.layers.first;) {
      const LaneStep& lane_step = state.lanes[l - stage.layers.first].lanes[lane.value - stage.lanes.first];
      Instruction& i = push(base, Opcode::backward);
      i.layer = {l};
      i.buffer = lane_step.buffer;
      i.accumulate = task.microbatch % per_lane_ != 0;
      i.source = input_slot(task);
      if (lane_ends) finish_lane(base, {l}, lane_step);
    }
    if (s > 0 && redo_.runs_backward({s - 1}, lane)) {
      const RankId to = plan_.rank_of({s - 1}, lane);
      if (to != out_.rank) push(base, Opcode::send_gradient).peer = to;
    }
    state.free_slots.insert(base.slot);
  }

  // Instead of a backward that nobody needs. By its time the next stage has the output, or is about to take it.
  void let_go(const PipelineTask& task) {
    StageState& state = states_[task.stage.value];
    const std::uint32_t slot = state.slot_of[task.microbatch];
    push({.stage = task.stage, .microbatch = task.microbatch, .slot = slot}, Opcode::drain_activation);
    state.free_slots.insert(slot);
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
  const Redo& redo_;
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

RankProgram compile_program(const Plan& plan, const Redo& redo, const ModelLayout& layout, const JobConfig& job,
                            RankId rank) {
  return Compiler(plan, redo, layout, job, rank).run();
}

std::vector<RankId> ranks_using(const Plan& plan, const ParameterGroup& group) {
  std::set<RankId> ranks;
  for (const LayerId use : group.uses) {
    for (const RankId r : plan.ranks_of_layer(use)) ranks.insert(r);
  }
  return {ranks.begin(), ranks.end()};
}

std::uint64_t most_lent_messages(const Plan& plan, const Redo& first, const ModelLayout& layout, const JobConfig& job) {
  std::uint64_t partials = 0;  // the most of any layer and rank
  const Redo whole(plan);
  for (std::uint32_t l = 0; l < layout.layer_count(); ++l) {
    for (const Redo* redo : {&whole, &first}) {
      std::map<RankId, std::uint64_t> sent;
      for (const Partial& p : partials_of_layer(plan, *redo, {l})) partials = std::max(partials, ++sent[p.rank]);
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
