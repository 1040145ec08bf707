#include "actors/save_folder.hpp"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "engine/model/hugging_face.hpp"

namespace kintsugi::actors {

namespace fs = std::filesystem;

namespace {

std::string outermost_missing(const fs::path& path) {
  std::error_code ignored;
  std::string missing;
  for (fs::path p = path; !p.empty() && !fs::exists(fs::symlink_status(p, ignored)); p = p.parent_path()) {
    missing = p.string();
    if (p == p.parent_path()) break;
  }
  return missing;
}

// The master weights of one shard: the first array behind the header (engine/state/save.hpp).
Result<std::vector<float>> read_master(const std::string& directory, const Shard& shard) {
  const std::string path = shard_file(directory, shard.id);
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Error{ErrorAction::tell_user, errno_message("cannot open", path)};
  std::vector<float> master(static_cast<std::size_t>(shard.count));
  std::span<std::byte> rest = std::as_writable_bytes(std::span(master));
  off_t at = kShardHeaderBytes;
  while (!rest.empty()) {
    const ssize_t n = ::pread(fd.get(), rest.data(), rest.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return Error{ErrorAction::tell_user, n < 0 ? errno_message("cannot read", path) : path + ": ends early"};
    rest = rest.subspan(static_cast<std::size_t>(n));
    at += n;
  }
  return master;
}

}  // namespace

Result<void> SaveFolder::probe(const std::string& directory) {
  SaveFolder folder;
  if (const Result<std::string> begun = folder.begin(directory); !begun) return begun.error();
  return {};
}

Result<std::string> SaveFolder::begin(const std::string& directory) {
  KINTSUGI_ASSERT(staging_.empty());
  made_from_ = outermost_missing(fs::path(directory).lexically_normal().parent_path());
  Result<std::string> begun = begin_save(directory);
  if (!begun) {
    std::error_code ignored;
    if (!made_from_.empty()) fs::remove(made_from_, ignored);  // only if it is empty
    return begun;
  }
  KINTSUGI_TRY_ASSIGN(hold_, hold_save(*begun));
  directory_ = directory;
  staging_ = *begun;
  return staging_;
}

Result<Digest> SaveFolder::commit(const StateManifest& manifest, const JobConfig& job,
                                  const std::atomic<bool>& cancelled) {
  KINTSUGI_ASSERT_MSG(!staging_.empty(), "a save is begun before it is committed");
  KINTSUGI_TRY(export_model(staging_, manifest, job, cancelled));
  KINTSUGI_TRY_ASSIGN(const Digest digest, finish_save(directory_, manifest));
  staging_.clear();
  hold_.reset();
  return digest;
}

void SaveFolder::abandon() {
  if (staging_.empty()) return;
  std::error_code ignored;
  fs::remove_all(staging_, ignored);
  if (!made_from_.empty()) {
    // Innermost first; a folder that somebody uses by now stays.
    for (fs::path p = fs::path(staging_).parent_path(); p.string().size() >= made_from_.size(); p = p.parent_path()) {
      if (!fs::remove(p, ignored)) break;
    }
  }
  staging_.clear();
  hold_.reset();
}

Result<StateManifest> complete_manifest(const JobConfig& job, Lineage lineage, Step step, std::uint64_t updates,
                                        const std::map<ShardId, Digest>& saved) {
  const ModelLayout layout(job.model);
  StateManifest manifest;
  manifest.position = {job_identity(job), step, updates, step.value * static_cast<std::uint64_t>(job.batch.sequences)};
  manifest.lineage = lineage;
  manifest.job_yaml = to_yaml(job);
  for (const auto& [id, digest] : saved) {
    if (id.value < layout.shards().size()) manifest.shards.push_back({layout.shard(id), digest});
  }
  if (manifest.shards.size() != layout.shards().size()) {
    return Error{ErrorAction::end_generation, "not every shard of the model was saved by its primary"};
  }
  manifest.parameters = saved_parameters(layout.parameters());
  manifest.state_digest = state_digest(manifest);
  return manifest;
}

Result<void> export_model(const std::string& directory, const StateManifest& manifest, const JobConfig& job,
                          const std::atomic<bool>& cancelled) {
  const ModelLayout layout(job.model);
  const std::string config = hugging_face_config(job.model, job.precision);
  KINTSUGI_TRY(write_file_atomically(directory + "/config.json", std::as_bytes(std::span(config))));
  const SafetensorsPlan plan = plan_safetensors(layout, job.precision);
  KINTSUGI_TRY_ASSIGN(const FileDescriptor file, create_safetensors(directory + "/model.safetensors", plan));
  for (const SavedShard& saved : manifest.shards) {
    if (cancelled) return Error{ErrorAction::cancelled, "the save was cancelled"};
    const Shard& shard = saved.shard;
    KINTSUGI_TRY_ASSIGN(const std::vector<float> master, read_master(directory, shard));
    const ParameterGroup& group = layout.group(shard.group);
    for (std::uint32_t p = group.first_parameter; p < group.first_parameter + group.parameter_count; ++p) {
      const Parameter& parameter = layout.parameters()[p];
      const std::int64_t begin = std::max(parameter.offset, shard.offset);
      const std::int64_t end = std::min(parameter.offset + parameter.count(), shard.offset + shard.count);
      if (begin >= end) continue;
      const auto values = std::span(master).subspan(static_cast<std::size_t>(begin - shard.offset),
                                                    static_cast<std::size_t>(end - begin));
      KINTSUGI_TRY(write_parameter_range(file.get(), plan, parameter, begin - parameter.offset, values));
    }
  }
  if (::fsync(file.get()) != 0) {
    return Error{ErrorAction::tell_user, errno_message("cannot fsync", directory + "/model.safetensors")};
  }
  return {};
}

}  // namespace kintsugi::actors
