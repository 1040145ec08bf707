// Saved state as bytes: schemas/state.capnp to structs and back. Pure; the bytes may be anybody's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/model/layout.hpp"
#include "engine/state/state_digest.hpp"

namespace kintsugi {

constexpr std::size_t kShardHeaderBytes = 4096;                   // a page: arrays can be mapped
constexpr std::size_t kMaxManifestBytes = std::size_t{64} << 20;  // about half a million shards

struct SavedShard {
  Shard shard;
  Digest digest;
};

struct ShardFileHeader {
  StatePosition position;
  Lineage lineage;
  SavedShard saved;
};

struct SavedParameter {
  std::string name;
  GroupId group;
  std::int64_t offset = 0;  // elements, within the group
  std::int64_t rows = 0;
  std::int64_t columns = 1;
};

struct StateManifest {
  StatePosition position;
  Lineage lineage;
  std::string job_yaml;
  std::vector<SavedShard> shards;  // all of the job, ids ascending
  std::vector<SavedParameter> parameters;
  Digest state_digest;  // encode writes what follows from the rest, decode compares
};

// Of the listed shards.
Digest state_digest(const StateManifest& manifest);
// What a manifest says of a model's parameters.
std::vector<SavedParameter> saved_parameters(const std::vector<Parameter>& parameters);

// kShardHeaderBytes bytes.
std::vector<std::byte> encode_shard_header(const ShardFileHeader& header);
// Accepts exactly what encode_shard_header makes, so that no flipped bit goes unseen. `source` names the file in
// messages.
Result<ShardFileHeader> decode_shard_header(std::span<const std::byte> bytes, const std::string& source);

std::vector<std::byte> encode_manifest(const StateManifest& manifest);
// Sizes and ids are in range, ids ascend, and the state digest follows from the shards'.
Result<StateManifest> decode_manifest(std::span<const std::byte> bytes, const std::string& source);
// The bytes start like a manifest of any version: the folder they lie in is a save.
bool looks_like_manifest(std::span<const std::byte> bytes);

}  // namespace kintsugi
