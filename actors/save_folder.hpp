// A save in the making, from the supervisor's side: begun, filled by ranks with their shards, then completed with the
// model in Hugging Face's form and published; or abandoned, and then nothing of it is left.
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "engine/model/job_config.hpp"
#include "engine/state/save.hpp"

namespace kintsugi::actors {

class SaveFolder {
 public:
  SaveFolder() = default;
  ~SaveFolder() { abandon(); }
  SaveFolder(const SaveFolder&) = delete;
  SaveFolder& operator=(const SaveFolder&) = delete;

  // Whether `directory` can be written, found by doing it and undoing it. Error{tell_user}.
  static Result<void> probe(const std::string& directory);

  // Returns where ranks write.
  Result<std::string> begin(const std::string& directory);
  // Writes config.json and model.safetensors from the shards in the staging folder, one shard in memory at a time, then
  // publishes. `cancelled` is looked at between shards. Returns the state digest.
  Result<Digest> commit(const StateManifest& manifest, const JobConfig& job, const std::atomic<bool>& cancelled);
  // Removes the staging folder, and the parents that `begin` made. Nothing after a commit.
  void abandon();

 private:
  std::string directory_;
  std::string staging_;    // empty: nothing begun
  FileDescriptor hold_;    // of the staging folder, against other runs
  std::string made_from_;  // the outermost parent that did not exist before
};

// Of the state after `step`, with every shard. Error{end_generation}: `saved` lacks one.
Result<StateManifest> complete_manifest(const JobConfig& job, Lineage lineage, Step step, std::uint64_t updates,
                                        const std::map<ShardId, Digest>& saved);

// config.json and model.safetensors in `directory`, which holds all of the manifest's shards.
Result<void> export_model(const std::string& directory, const StateManifest& manifest, const JobConfig& job,
                          const std::atomic<bool>& cancelled);

}  // namespace kintsugi::actors
