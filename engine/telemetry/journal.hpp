// The supervisor's journal: DIRECTORY/journal, append-only, written by the one supervisor that holds DIRECTORY/lock. What
// must be true after a crash is appended durably before anybody is told; all else reaches the kernel at once (so it survives
// the process) and the disk with the next durable entry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/file.hpp"
#include "base/units.hpp"
#include "engine/telemetry/journal_format.hpp"
#include "engine/telemetry/journal_state.hpp"

namespace kintsugi {

enum class Durability : std::uint8_t { buffered, durable };

// Who opens it.
struct JournalStart {
  std::int64_t wall_ns = 0;
  std::string host;
  std::uint32_t pid = 0;
  std::string version;
  std::uint64_t new_cluster_id = 0;         // random; only for a journal that is made now
  std::uint32_t least_epoch = 1;            // takes a higher one where the journal's last is not below it
  std::size_t compaction_bytes = 8 * kMiB;  // rewritten shorter from here on: some 30 000 events
};

// One thread at a time.
class Journal {
 public:
  // Makes the directory, takes the lock, reads what is there, cuts a torn tail off and makes `started` with the next epoch
  // durable. Error{tell_user}: held by another supervisor, damaged, of another version, not readable. Error of append():
  // the disk does not take it.
  static Result<Journal> open(const std::string& directory, const JournalStart& start);
  // Makes a journal of a copy, for open() to go on with. Error{tell_user}: there is one, or the disk does not take it.
  static Result<void> restore(const std::string& directory, std::uint64_t cluster_id,
                              std::span<const JournalEntry> entries);

  // Durable: on the disk, with everything appended before, when it returns. After Error{restart_process} nothing is
  // appended any more, and every call says why. Error{tell_user}: this entry is too large; the journal goes on.
  Result<void> append(const JournalEntry& entry, Durability durability);

  const std::string& directory() const { return directory_; }
  std::uint64_t cluster_id() const { return cluster_id_; }
  std::uint32_t epoch() const { return epoch_; }  // of this start
  Incarnation incarnation() const { return incarnation_; }
  // As the former supervisor left it, `epoch` its last.
  const RestartState& found() const { return found_; }
  std::size_t dropped_bytes() const { return dropped_bytes_; }  // the torn tail's

 private:
  Journal(std::string directory, FileDescriptor lock, std::uint64_t cluster_id, std::size_t compaction_bytes);

  std::string path() const;
  Result<void> write(std::span<const std::byte> bytes);
  Result<void> sync();
  Result<void> reopen(std::size_t bytes);
  Result<void> compact_if_long();
  Error fail(const Error& error);

  std::string directory_;
  FileDescriptor lock_;
  std::uint64_t cluster_id_ = 0;
  JournalFormat format_;
  std::size_t compaction_bytes_ = 0;
  std::size_t compact_at_ = 0;  // no lower than twice what the last compaction left
  FileDescriptor file_;
  std::uint64_t end_ = 0;
  std::uint64_t synced_ = 0;
  std::optional<Error> failed_;
  std::uint32_t epoch_ = 0;
  Incarnation incarnation_;
  RestartState found_;
  std::size_t dropped_bytes_ = 0;
};

// What is there now, for `explain`: needs no lock and changes nothing. Beside a running writer a torn tail is an entry that
// is being written.
Result<JournalContents> read_journal(const std::string& directory);

}  // namespace kintsugi
