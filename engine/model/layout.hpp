// Where every parameter of a model lives: layers, groups, shards. All of it is a function of the model section alone.
//
// A layer is the unit of stages: embedding (0), blocks (1..N), head (N + 1). A group is a run of a layer's parameters
// that share their uses: one flat array without gaps, the unit of weight and gradient buffers. Tables of tokens and of
// positions are groups of their own. A shard is a fixed slice of a group: the unit of state. A tied embedding is a
// group of layer 0 with two uses: layer 0 and the head.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "engine/model/job_config.hpp"

namespace kintsugi {

enum class LayerKind : std::uint8_t { embedding, block, head };
enum class Initialisation : std::uint8_t { zeros, ones, normal };

struct Parameter {
  std::string name;  // of Hugging Face's checkpoint of the family, e.g. "transformer.h.0.attn.c_attn.weight"
  GroupId group;
  std::int64_t offset = 0;  // elements, within the group
  // As it lies here: (outputs, inputs) for matrices, (n) for vectors (columns = 1, is_matrix = false).
  std::int64_t rows = 0;
  std::int64_t columns = 1;
  bool is_matrix = false;          // matrices take weight decay; embeddings count as matrices
  bool stored_transposed = false;  // Hugging Face keeps GPT-2's linear weights as (inputs, outputs)
  Initialisation initialisation = Initialisation::zeros;
  float standard_deviation = 0;  // for `normal`

  std::int64_t count() const { return rows * columns; }
};

struct ParameterGroup {
  GroupId id;
  LayerId owner;
  std::vector<LayerId> uses;  // ascending; the owner first. The order in which gradients of uses are added.
  std::int64_t count = 0;     // elements
  std::uint32_t first_parameter = 0, parameter_count = 0;  // in ModelLayout::parameters()
  std::uint32_t first_shard = 0, shard_count = 0;          // in ModelLayout::shards()
};

struct Shard {
  ShardId id;
  GroupId group;
  std::int64_t offset = 0;  // elements, within the group; a multiple of kShardAlignment
  std::int64_t count = 0;
};

// Elements. Boundaries fall on cache lines and on whole blocks of the state digest.
constexpr std::int64_t kShardAlignment = 4096;
constexpr std::int64_t kMaxShardElements = std::int64_t{4} << 20;

class ModelLayout {
 public:
  // A group is cut into at most 16 equal shards, each a multiple of kShardAlignment and at most kMaxShardElements (more
  // shards where 16 would be too large), the last one shorter.
  explicit ModelLayout(const ModelConfig& config);

  const ModelConfig& config() const { return config_; }
  std::uint32_t layer_count() const;  // blocks + 2
  LayerKind kind(LayerId layer) const;
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<ParameterGroup>& groups() const { return groups_; }
  const std::vector<Shard>& shards() const { return shards_; }

  const ParameterGroup& group(GroupId id) const { return groups_.at(id.value); }
  const Shard& shard(ShardId id) const { return shards_.at(id.value); }
  // Groups that `layer` uses, its own and a tied one, ascending.
  std::vector<GroupId> groups_used_by(LayerId layer) const;
  // Asserts that it exists.
  const Parameter& parameter(std::string_view name) const;
  std::int64_t parameter_count() const;  // elements, a tied parameter once

 private:
  ModelConfig config_;
  std::vector<Parameter> parameters_;
  std::vector<ParameterGroup> groups_;
  std::vector<Shard> shards_;
};

}  // namespace kintsugi
