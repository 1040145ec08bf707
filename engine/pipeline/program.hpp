// A rank's step as data: the instruction list that the executor carries out, compiled from a plan and what a
// step still needs.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/layout.hpp"
#include "engine/pipeline/lane_sums.hpp"
#include "engine/pipeline/schedule.hpp"
#include "engine/plan/plan.hpp"

namespace kintsugi {

enum class Opcode : std::uint8_t {
  send_kept,           // layer, buffer, node: a sum that outlived a fault, likewise send_partial
  fetch_weights,       // group: take what the primaries published, before the first use
  load_tokens,         // stage, slot, microbatch: the inputs of the embedding
  receive_activation,  // stage, slot, microbatch, peer
  forward,             // layer, stage, slot, microbatch
  send_activation,     // stage, slot, microbatch, peer
  drain_activation,    // stage, slot: the next stage has taken it, though no gradient came back
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

struct RankProgram {
  RankId rank;
  std::vector<StageWork> stages;
  std::vector<Instruction> instructions;
  bool alone = false;                   // in its plan
  std::vector<LayerSum> kept;           // sums of an interrupted step that this rank brings
  std::vector<GroupId> groups;          // that this rank uses, ascending
  std::vector<GroupId> shared_groups;   // of these, those that other ranks use, too: weights and partial sums are lent
  std::vector<GroupId> shipped_groups;  // and those whose reduced gradients are lent, to replicas
  std::vector<ShardId> shards;          // that this rank is primary of, ascending
  std::vector<ShardId> replicas;        // that it holds a replica of, ascending
  std::uint32_t microbatches = 0;       // of the step, over all lanes

  const StageWork& work(StageId stage) const;
};

RankProgram compile_program(const Plan& plan, const Redo& redo, const ModelLayout& layout, const JobConfig& job,
                            RankId rank);

// Ranks that use `group`, ascending: those that need its published weights.
std::vector<RankId> ranks_using(const Plan& plan, const ParameterGroup& group);

// A bound on the messages that one rank may have lent to another and not got back yet: what carriers size queues by, so
// that no send waits for a receiver that waits for us.
// `first`: what the generation's first step needs.
std::uint64_t most_lent_messages(const Plan& plan, const Redo& first, const ModelLayout& layout, const JobConfig& job);

}  // namespace kintsugi
