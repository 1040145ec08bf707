// A rank's step as data: the instruction list that the executor carries out, compiled from a plan alone.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/layout.hpp"
#include "engine/pipeline/schedule.hpp"
#include "engine/plan/plan.hpp"

namespace kintsugi {

enum class Opcode : std::uint8_t {
  fetch_weights,       // group: take what the primaries published, before the first use
  load_tokens,         // stage, slot, microbatch: the inputs of the embedding
  receive_activation,  // stage, slot, microbatch, peer
  forward,             // layer, stage, slot, microbatch
  send_activation,     // stage, slot, microbatch, peer
  load_targets,        // stage, slot, microbatch: the targets of the head
  receive_gradient,    // stage, microbatch, peer
  backward,            // layer, stage, slot, microbatch, buffer, accumulate
  send_gradient,       // stage, microbatch, peer
  merge_lanes,         // layer, buffer += source: two siblings of the lane tree
  send_partial,        // layer, buffer, node: a maximal subtree, to the primaries of the layer's shards
  reduce_group,        // group: finish the trees of the shards this rank is primary of, and lend them to the replicas
  receive_reduced,     // shard, peer: the reduced gradient of a shard this rank holds a replica of
};

constexpr std::uint32_t kOwnSlot = UINT32_MAX;

struct Instruction {
  Opcode op = Opcode::forward;
  bool accumulate = false;
  StageId stage;
  LayerId layer;
  GroupId group;
  ShardId shard;
  RankId peer;
  std::uint32_t microbatch = 0;  // of the step
  std::uint32_t slot = 0;        // of activations, within (rank, stage)
  std::uint32_t buffer = 0;      // of gradients, within (rank, stage)
  // merge_lanes: the buffer added into `buffer`. forward and backward of a stage's first layer: the slot of the stage
  // before that holds the input, where this rank made it; else kOwnSlot.
  std::uint32_t source = 0;
  TreeNode node;
  bool operator==(const Instruction&) const = default;
};

// What a rank needs for one stage it works.
struct StageWork {
  StageId stage;
  LayerRange layers;
  LaneRange lanes;
  std::uint32_t slots = 0;             // most microbatches between forward and backward at once
  std::uint32_t gradient_buffers = 0;  // most partial sums alive at once: at most log2(lanes) + 1
};

// One partial sum of a (layer's use of a) group: whose it is and what it covers.
struct Partial {
  RankId rank;
  TreeNode node;
  std::uint32_t buffer = 0;  // at its rank
  bool operator==(const Partial&) const = default;
};

struct RankProgram {
  RankId rank;
  std::vector<StageWork> stages;
  std::vector<Instruction> instructions;
  std::vector<GroupId> groups;        // that this rank uses, ascending
  std::vector<GroupId> lent_weights;  // of these, those that other ranks use, too
  // And those with a shard that this rank is primary of and others hold replicas of: its reduced gradient is lent.
  std::vector<GroupId> lent_gradients;
  std::vector<ShardId> shards;     // that this rank is primary of, ascending
  std::vector<ShardId> replicas;   // that it holds a replica of, ascending
  std::uint32_t microbatches = 0;  // of the step, over all lanes

  const StageWork& work(StageId stage) const;
};

RankProgram compile_program(const Plan& plan, const ModelLayout& layout, const JobConfig& job, RankId rank);

// Every partial sum of `layer`, in lane order: what a primary adds, and how a sender keeps it.
std::vector<Partial> partials_of_layer(const Plan& plan, LayerId layer);
// Ranks that use `group`, ascending: those that need its published weights.
std::vector<RankId> ranks_using(const Plan& plan, const ParameterGroup& group);

// A bound on the messages that one rank may have lent to another and not got back yet: what carriers size queues by, so
// that no send waits for a receiver that waits for us.
std::uint64_t most_lent_messages(const Plan& plan, const ModelLayout& layout, const JobConfig& job);

}  // namespace kintsugi
