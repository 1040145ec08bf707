#include "engine/state/save.hpp"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <initializer_list>

#include "base/file.hpp"

namespace kintsugi {

namespace fs = std::filesystem;

namespace {

// In DIR.tmp until it is published: tells a save in the making from somebody's folder.
constexpr char kMarker[] = "kintsugi-save-in-progress";

Error io_error(const char* what, const std::string& path) {
  return {ErrorAction::tell_user, errno_message(what, path)};
}

// DIR without a trailing slash; where it points if it is a link.
std::string target_of(const std::string& directory) {
  fs::path path = fs::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  std::error_code failed;
  if (fs::is_symlink(path, failed)) path = fs::weakly_canonical(path, failed);
  return path.string();
}

std::string staging_of(const std::string& target) {
  return target + ".tmp";
}
std::string older_of(const std::string& target) {
  return target + ".old";
}

bool is_save(const std::string& directory) {
  const FileDescriptor fd(::open(manifest_file(directory).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::array<std::byte, 24> head{};
  return fd.valid() && ::read(fd.get(), head.data(), head.size()) == static_cast<ssize_t>(head.size()) &&
         looks_like_manifest(head);
}

// Nobody's work is lost if this goes: absent, an empty folder, a save, or one in the making.
bool is_ours(const std::string& directory) {
  std::error_code failed;
  if (!fs::exists(fs::symlink_status(directory, failed))) return true;
  if (!fs::is_directory(directory, failed)) return false;
  return fs::is_empty(directory, failed) || is_save(directory) || fs::exists(fs::path(directory) / kMarker, failed);
}

// What a save does not hold: its first entry that is neither the state nor the model export.
std::string foreign_entry(const std::string& directory) {
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, failed)) {
    const std::string name = entry.path().filename().string();
    if (name != "state" && name != "config.json" && name != "model.safetensors" && name != kMarker) return name;
  }
  return {};
}

Result<void> require_ours(const std::string& directory) {
  if (is_save(directory)) {
    const std::string other = foreign_entry(directory);
    if (other.empty()) return {};
    return Error{ErrorAction::tell_user, directory + " is a save that also holds " + other +
                                             ", which would be lost. Move that away, or name another folder."};
  }
  if (is_ours(directory)) return {};
  return Error{ErrorAction::tell_user, directory +
                                           " exists and is no save of kintsugi's; it is left as it is. Name another"
                                           " folder, or move this one away."};
}

Result<void> remove_tree(const std::string& directory) {
  std::error_code failed;
  fs::remove_all(directory, failed);
  if (!failed) return {};
  return Error{ErrorAction::tell_user, "cannot remove " + directory + ": " + failed.message()};
}

Result<void> write_pieces(int fd, std::initializer_list<std::span<const std::byte>> pieces, const std::string& path) {
  for (std::span<const std::byte> piece : pieces) {
    while (!piece.empty()) {
      const ssize_t n = ::write(fd, piece.data(), piece.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return io_error("cannot write", path);
      piece = piece.subspan(static_cast<std::size_t>(n));
    }
  }
  if (::fsync(fd) != 0) return io_error("cannot fsync", path);
  return {};
}

Result<void> check_shard_file(const std::string& staging, const StateManifest& manifest, const SavedShard& listed) {
  const std::string path = shard_file(staging, listed.shard.id);
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return io_error("shard not written: cannot open", path);
  std::vector<std::byte> head(kShardHeaderBytes);
  if (::pread(fd.get(), head.data(), head.size(), 0) != static_cast<ssize_t>(head.size()))
    return io_error("cannot read", path);
  if (head != encode_shard_header({manifest.position, manifest.lineage, listed})) {
    return Error{ErrorAction::retry, path + ": holds another state than the manifest lists; save again."};
  }
  return {};
}

// DIR.tmp becomes DIR. Exchanging the two names is one step; a file system that cannot gets two renames, and begin_save
// or the reader's message puts DIR.old back should a crash come between them.
Result<void> publish(const std::string& target) {
  const std::string staging = staging_of(target);
  const std::string older = older_of(target);
  std::error_code ignored;
  if (!is_save(target)) {
    if (::rename(staging.c_str(), target.c_str()) != 0) return io_error("cannot rename to", target);
  } else if (::renameat2(AT_FDCWD, staging.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) != 0) {
    KINTSUGI_TRY(require_ours(older));
    KINTSUGI_TRY(remove_tree(older));
    if (::rename(target.c_str(), older.c_str()) != 0) return io_error("cannot rename", target);
    if (::rename(staging.c_str(), target.c_str()) != 0) {
      const Error why = io_error("cannot rename to", target);
      fs::rename(older, target, ignored);
      return why;
    }
  }
  KINTSUGI_TRY(fsync_directory(fs::path(target).parent_path().string()));
  // What is left to remove is the older save; the newer one is safe whether or not this works.
  fs::remove_all(staging, ignored);
  if (is_save(older)) fs::remove_all(older, ignored);
  return {};
}

}  // namespace

std::string shard_file(const std::string& directory, ShardId shard) {
  std::array<char, 32> name{};
  snprintf(name.data(), name.size(), "shard-%08u.bin", shard.value);
  return directory + "/state/" + name.data();
}
std::string manifest_file(const std::string& directory) {
  return directory + "/state/manifest.capnp";
}
std::string manifest_digest_file(const std::string& directory) {
  return directory + "/state/manifest.xxh128";
}

Result<FileDescriptor> hold_save(const std::string& staging) {
  FileDescriptor fd(::open(staging.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return io_error("cannot open", staging);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  return Error{ErrorAction::tell_user,
               "another run is saving into " + staging + "; wait for its end, or name another folder"};
}

Result<std::string> begin_save(const std::string& directory) {
  const std::string target = target_of(directory);
  const std::string staging = staging_of(target);
  std::error_code failed;
  if (fs::is_directory(staging, failed)) KINTSUGI_TRY(hold_save(staging));
  if (!fs::exists(target, failed) && is_save(older_of(target))) fs::rename(older_of(target), target, failed);
  KINTSUGI_TRY(require_ours(target));
  KINTSUGI_TRY(require_ours(staging));
  KINTSUGI_TRY(remove_tree(staging));
  fs::create_directories(staging, failed);
  if (failed) return Error{ErrorAction::tell_user, "cannot make " + staging + ": " + failed.message()};
  KINTSUGI_TRY(write_file_atomically(staging + "/" + kMarker, {}));
  fs::create_directory(staging + "/state", failed);
  if (failed) return Error{ErrorAction::tell_user, "cannot make " + staging + "/state: " + failed.message()};
  return staging;
}

Result<SavedShard> write_shard(const std::string& staging, const StatePosition& position, Lineage lineage,
                               const Shard& shard, ConstShardState state) {
  KINTSUGI_ASSERT(state.master.size() == static_cast<std::size_t>(shard.count));
  const SavedShard saved{shard, shard_digest(state)};
  const std::string path = shard_file(staging, shard.id);
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  const FileDescriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return io_error("cannot create", temporary);
  Result<void> written = write_pieces(fd.get(),
                                      {encode_shard_header({position, lineage, saved}), std::as_bytes(state.master),
                                       std::as_bytes(state.moment1), std::as_bytes(state.moment2)},
                                      temporary);
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0) written = io_error("cannot rename to", path);
  if (written) return saved;
  ::unlink(temporary.c_str());
  return written.error();
}

Result<Digest> finish_save(const std::string& directory, const StateManifest& manifest) {
  const std::string target = target_of(directory);
  const std::string staging = staging_of(target);
  KINTSUGI_TRY(require_ours(target));
  for (const SavedShard& listed : manifest.shards) KINTSUGI_TRY(check_shard_file(staging, manifest, listed));
  const std::vector<std::byte> bytes = encode_manifest(manifest);
  KINTSUGI_ASSERT(bytes.size() <= kMaxManifestBytes);
  const std::string line = to_hex(digest_of(bytes)) + "  manifest.capnp\n";
  KINTSUGI_TRY(write_file_atomically(manifest_digest_file(staging), std::as_bytes(std::span(line))));
  KINTSUGI_TRY(write_file_atomically(manifest_file(staging), bytes));  // fsyncs the names of the shard files, too
  if (::unlink((staging + "/" + kMarker).c_str()) != 0) return io_error("cannot remove the marker of", staging);
  KINTSUGI_TRY(fsync_directory(staging));
  KINTSUGI_TRY(publish(target));
  return state_digest(manifest);
}

}  // namespace kintsugi
