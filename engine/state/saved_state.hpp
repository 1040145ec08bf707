// Reading saved state: open checks the manifest, read_shard one shard's file, so a rank reads and checks only what it
// needs.
#pragma once

#include <span>
#include <string>

#include "base/result.hpp"
#include "engine/state/state_codec.hpp"

namespace kintsugi {

// Immutable after open; any thread. Every Error{tell_user} names the file and what to do.
class SavedState {
 public:
  static Result<SavedState> open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  const StateManifest& manifest() const { return manifest_; }

  // The save is of the job with this identity.
  Result<void> check_job(Digest identity) const;
  // The save is cut into exactly these shards, which are all of the job.
  Result<void> check_shards(std::span<const Shard> shards) const;
  // Fills `out` (shard.count elements each) and checks every byte of the file. The shard must be listed.
  Result<void> read_shard(ShardId shard, const ShardState& out) const;
  // Reads and checks every shard.
  Result<void> verify() const;

 private:
  SavedState(std::string directory, StateManifest manifest)
      : directory_(std::move(directory)), manifest_(std::move(manifest)) {}
  const SavedShard* find(ShardId shard) const;

  std::string directory_;
  StateManifest manifest_;
};

}  // namespace kintsugi
