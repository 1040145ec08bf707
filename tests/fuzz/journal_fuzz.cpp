// libFuzzer target: the supervisor's journal, as a whole file and as one entry. A refusal names the file; what is accepted
// accounts for every byte, and survives being written out and read again.
#include <cstdint>
#include <span>

#include "base/assert.hpp"
#include "engine/telemetry/journal_format.hpp"
#include "engine/telemetry/journal_state.hpp"

namespace {

using namespace kintsugi;

void read_as_file(std::span<const std::byte> bytes) {
  const Result<JournalContents> journal = parse_journal(bytes, "fuzz");
  if (!journal) {
    KINTSUGI_ASSERT(journal.error().action == ErrorAction::tell_user && journal.error().message.starts_with("fuzz: "));
    return;
  }
  KINTSUGI_ASSERT(journal->good_bytes + journal->dropped_bytes == bytes.size());
  static_cast<void>(compacted(journal->entries));
}

void read_as_entry(std::span<const std::byte> bytes) {
  const Result<JournalEntry> entry = decode_entry(bytes);
  if (!entry) return;
  const Result<std::vector<std::byte>> file = JournalFormat(1).file(std::span(&*entry, 1));
  if (!file) return;  // decoded from pointers that all aim at one text, it may be larger than any entry
  const Result<JournalContents> again = parse_journal(*file, "again");
  KINTSUGI_ASSERT(again.ok() && again->dropped_bytes == 0);
  KINTSUGI_ASSERT(again->entries.size() == 1 && again->entries.front() == *entry);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  read_as_file(bytes);
  read_as_entry(bytes);
  return 0;
}
