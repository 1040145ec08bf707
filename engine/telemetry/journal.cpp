#include "engine/telemetry/journal.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace kintsugi {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadLimit = kGiB;  // compaction keeps a journal at some MiB

std::string journal_path(const std::string& directory) {
  return directory + "/journal";
}

// With its parents; what is made here is still there after a crash.
Result<void> make_directory(const fs::path& directory) {
  std::error_code failed;
  if (directory.empty() || fs::exists(directory, failed)) return {};
  KINTSUGI_TRY(make_directory(directory.parent_path()));
  if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST) {
    return Error{ErrorAction::tell_user, errno_message("cannot make the state directory", directory.string())};
  }
  return fsync_directory(directory.parent_path().string());
}

Result<FileDescriptor> take_lock(const std::string& directory) {
  const std::string path = directory + "/lock";
  FileDescriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) return Error{ErrorAction::tell_user, errno_message("cannot open", path)};
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return Error{ErrorAction::tell_user, errno_message("cannot lock", path)};
  return Error{ErrorAction::tell_user, "another supervisor uses the state directory " + directory +
                                           "; end it, or give this one its own --state"};
}

Result<JournalContents> read_and_parse(const std::string& path) {
  KINTSUGI_TRY_ASSIGN(const std::vector<std::byte> bytes, read_file(path, kReadLimit));
  return parse_journal(bytes, path);
}

}  // namespace

Journal::Journal(std::string directory, FileDescriptor lock, std::uint64_t cluster_id, std::size_t compaction_bytes)
    : directory_(std::move(directory)),
      lock_(std::move(lock)),
      cluster_id_(cluster_id),
      format_(cluster_id),
      compaction_bytes_(compaction_bytes),
      compact_at_(compaction_bytes) {}

std::string Journal::path() const {
  return journal_path(directory_);
}

Result<Journal> Journal::open(const std::string& directory, const JournalStart& start) {
  KINTSUGI_TRY(make_directory(directory));
  KINTSUGI_TRY_ASSIGN(FileDescriptor lock, take_lock(directory));
  const std::string path = journal_path(directory);
  if (std::error_code unreadable; !fs::exists(path, unreadable)) {
    KINTSUGI_TRY(write_file_atomically(path, JournalFormat(start.new_cluster_id).header()));
  }
  KINTSUGI_TRY_ASSIGN(const JournalContents contents, read_and_parse(path));

  Journal journal(directory, std::move(lock), contents.cluster_id, start.compaction_bytes);
  journal.found_ = restart_state(contents.entries);
  journal.dropped_bytes_ = contents.dropped_bytes;
  journal.epoch_ = std::max(journal.found_.epoch + 1, start.least_epoch);
  journal.incarnation_ = incarnation_of(start.wall_ns);
  KINTSUGI_ASSERT_MSG(journal.epoch_ != 0, "epochs are used up");
  KINTSUGI_TRY(journal.reopen(contents.good_bytes));
  const journaled::Started started{journal.epoch_, contents.cluster_id, start.host, start.pid, start.version};
  KINTSUGI_TRY(journal.append({start.wall_ns, started}, Durability::durable));
  return journal;
}

Result<void> Journal::restore(const std::string& directory, std::uint64_t cluster_id,
                              std::span<const JournalEntry> entries) {
  KINTSUGI_TRY(make_directory(directory));
  KINTSUGI_TRY_ASSIGN(const FileDescriptor lock, take_lock(directory));
  const std::string path = journal_path(directory);
  if (std::error_code unreadable; fs::exists(path, unreadable)) {
    return Error{ErrorAction::tell_user, path +
                                             " is there already: another cluster's, or a newer one; name a new "
                                             "state directory"};
  }
  KINTSUGI_TRY_ASSIGN(const std::vector<std::byte> bytes, JournalFormat(cluster_id).file(entries));
  return write_file_atomically(path, bytes);
}

// Takes the file as `bytes` long, and on the disk with its name: what a killed writer left may still be in memory only.
Result<void> Journal::reopen(std::size_t bytes) {
  file_ = FileDescriptor(::open(path().c_str(), O_WRONLY | O_CLOEXEC));
  if (!file_.valid()) return Error{ErrorAction::tell_user, errno_message("cannot open", path())};
  if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) {
    return Error{ErrorAction::tell_user, errno_message("cannot cut the torn tail of", path())};
  }
  KINTSUGI_TRY(fsync_directory(directory_));
  end_ = bytes;
  return sync();
}

Result<void> Journal::append(const JournalEntry& entry, Durability durability) {
  if (failed_) return *failed_;
  if (const Result<void> shorter = compact_if_long(); !shorter) return fail(shorter.error());
  KINTSUGI_TRY_ASSIGN(const std::vector<std::byte> frame, format_.frame(entry, end_, synced_));
  if (const Result<void> written = write(frame); !written) return fail(written.error());
  if (durability == Durability::buffered) return {};
  if (const Result<void> synced = sync(); !synced) return fail(synced.error());
  return {};
}

Result<void> Journal::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(end_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{ErrorAction::tell_user, errno_message("cannot write", path())};
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    end_ += static_cast<std::uint64_t>(n);
  }
  return {};
}

Result<void> Journal::sync() {
  if (::fdatasync(file_.get()) != 0) return Error{ErrorAction::tell_user, errno_message("cannot sync", path())};
  synced_ = end_;
  return {};
}

// For good. Linux reports a failed write-back once and forgets the pages: a second fsync succeeds and has written nothing
// (PostgreSQL wiki, "Fsync Errors", 2018). What is on the disk can only be found out by reading it anew.
Error Journal::fail(const Error& error) {
  failed_ =
      Error{ErrorAction::restart_process,
            error.message + "; nothing is journaled any more: make room or mend the disk, then restart the supervisor"};
  return *failed_;
}

// Also of one that grew while it was open: a supervisor that runs for a year must not fill its disk.
Result<void> Journal::compact_if_long() {
  if (end_ < compact_at_) return {};
  KINTSUGI_TRY_ASSIGN(const JournalContents contents, read_and_parse(path()));
  KINTSUGI_ASSERT_MSG(contents.good_bytes == end_, "the journal lost entries under its writer");
  KINTSUGI_TRY_ASSIGN(const std::vector<std::byte> bytes, format_.file(compacted(contents.entries)));
  KINTSUGI_TRY(write_file_atomically(path(), bytes));
  compact_at_ = std::max(compaction_bytes_, 2 * bytes.size());
  return reopen(bytes.size());
}

Result<JournalContents> read_journal(const std::string& directory) {
  return read_and_parse(journal_path(directory));
}

}  // namespace kintsugi
