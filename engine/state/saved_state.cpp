#include "engine/state/saved_state.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/assert.hpp"
#include "base/file.hpp"
#include "engine/state/save.hpp"

namespace kintsugi {

namespace fs = std::filesystem;

namespace {

Error damaged(const std::string& path, const std::string& what) {
  return {ErrorAction::tell_user, path + ": " + what + ". The save is damaged: resume from another one."};
}

Error not_a_save(const std::string& directory) {
  std::error_code ignored;
  if (!fs::exists(directory, ignored) && fs::exists(manifest_file(directory + ".old"), ignored)) {
    return {ErrorAction::tell_user, directory + " does not exist, but " + directory +
                                        ".old does: a save was interrupted"
                                        " while it replaced that one. Rename it back to " +
                                        directory + "."};
  }
  return {ErrorAction::tell_user, directory +
                                      " holds no saved state (no state/manifest.capnp). Name a folder that"
                                      " `kintsugi run --save` finished."};
}

Result<void> read_exactly(int fd, std::span<std::byte> out, std::size_t at, const std::string& path) {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd, out.data(), out.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{ErrorAction::tell_user, errno_message("cannot read", path)};
    if (n == 0) return damaged(path, "it is shorter than it was");
    out = out.subspan(static_cast<std::size_t>(n));
    at += static_cast<std::size_t>(n);
  }
  return {};
}

}  // namespace

Result<SavedState> SavedState::open(const std::string& directory) {
  const std::string path = manifest_file(directory);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return not_a_save(directory);
  KINTSUGI_TRY_ASSIGN(const std::vector<std::byte> bytes, read_file(path, kMaxManifestBytes));
  KINTSUGI_TRY_ASSIGN(const std::string line, read_text_file(manifest_digest_file(directory), 4096));
  const std::optional<Digest> expected = digest_from_hex(std::string_view(line).substr(0, 32));
  if (expected != digest_of(bytes)) return damaged(path, "its digest is not the one in manifest.xxh128");
  KINTSUGI_TRY_ASSIGN(StateManifest manifest, decode_manifest(bytes, path));
  return SavedState(directory, std::move(manifest));
}

const SavedShard* SavedState::find(ShardId shard) const {
  const auto id_of = [](const SavedShard& saved) { return saved.shard.id; };
  const auto found = std::ranges::lower_bound(manifest_.shards, shard, {}, id_of);
  return found != manifest_.shards.end() && found->shard.id == shard ? &*found : nullptr;
}

Result<void> SavedState::check_job(Digest identity) const {
  if (manifest_.position.job_identity == identity) return {};
  return Error{
      ErrorAction::tell_user,
      directory_ + ": saved by another job (identity " + to_hex(manifest_.position.job_identity) + ", this job has " +
          to_hex(identity) +
          "). Only the name, data.train, parallel and steps of a job may differ from the saved"
          " one's; model, data.tokens, data.seed, batch, optimizer and precision may not. The saved job file is in"
          " its manifest: `capnp decode` with schemas/state.capnp shows it."};
}

Result<void> SavedState::check_shards(std::span<const Shard> shards) const {
  const auto same = [](const SavedShard& saved, const Shard& shard) {
    return saved.shard.id == shard.id && saved.shard.group == shard.group && saved.shard.offset == shard.offset &&
           saved.shard.count == shard.count;
  };
  if (std::ranges::equal(manifest_.shards, shards, same)) return {};
  return Error{ErrorAction::tell_user, directory_ + ": its " + std::to_string(manifest_.shards.size()) +
                                           " shards are not cut like the model's " + std::to_string(shards.size()) +
                                           ". Resume with the job file and the kintsugi version that wrote it."};
}

Result<void> SavedState::read_shard(ShardId shard, const ShardState& out) const {
  const SavedShard* listed = find(shard);
  KINTSUGI_ASSERT_MSG(listed != nullptr, "check_shards comes before read_shard");
  const auto count = static_cast<std::size_t>(listed->shard.count);
  KINTSUGI_ASSERT(out.master.size() == count && out.moment1.size() == count && out.moment2.size() == count);
  const std::string path = shard_file(directory_, shard);
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid() && errno == ENOENT) return damaged(path, "the manifest lists it, but it is missing");
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0)
    return Error{ErrorAction::tell_user, errno_message("cannot open", path)};
  const std::size_t array_bytes = count * sizeof(float);
  if (!S_ISREG(info.st_mode) || static_cast<std::size_t>(info.st_size) != kShardHeaderBytes + 3 * array_bytes) {
    return damaged(path, "has " + std::to_string(info.st_size) + " bytes, not " +
                             std::to_string(kShardHeaderBytes + 3 * array_bytes));
  }
  std::vector<std::byte> head(kShardHeaderBytes);
  KINTSUGI_TRY(read_exactly(fd.get(), head, 0, path));
  if (head != encode_shard_header({manifest_.position, manifest_.lineage, *listed})) {
    const Result<ShardFileHeader> decoded = decode_shard_header(head, path);
    if (!decoded) return decoded.error();
    return damaged(path, "is of step " + to_string(decoded->position.step) + ", shard " +
                             to_string(decoded->saved.shard.id) + ": not what the manifest lists");
  }
  std::size_t at = kShardHeaderBytes;
  for (const std::span<float> array : {out.master, out.moment1, out.moment2}) {
    KINTSUGI_TRY(read_exactly(fd.get(), std::as_writable_bytes(array), at, path));
    at += array_bytes;
  }
  if (shard_digest(out) != listed->digest)
    return damaged(path, "its values do not have the digest they were saved with");
  return {};
}

Result<void> SavedState::verify() const {
  std::vector<float> values;
  for (const SavedShard& saved : manifest_.shards) {
    const auto count = static_cast<std::size_t>(saved.shard.count);
    values.resize(3 * count);
    const std::span<float> all(values);
    KINTSUGI_TRY(read_shard(saved.shard.id, {all.first(count), all.subspan(count, count), all.last(count)}));
  }
  return {};
}

}  // namespace kintsugi
