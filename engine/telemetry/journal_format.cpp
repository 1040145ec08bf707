#include "engine/telemetry/journal_format.hpp"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <string>

#include "base/digest.hpp"

namespace kintsugi {

namespace {

struct Header {
  std::uint64_t magic = 0;
  std::uint64_t version = 0;
  std::uint64_t cluster_id = 0;
  std::uint64_t checksum = 0;
};
static_assert(sizeof(Header) == 32);

struct FrameHeader {
  std::uint32_t mark = 0;
  std::uint32_t payload_bytes = 0;
  std::uint64_t synced = 0;
  std::uint64_t checksum = 0;
};
static_assert(sizeof(FrameHeader) == 24);

constexpr std::uint64_t kMagic = 0x4C4E524A53544E4B;  // "KNTSJRNL" in the file
constexpr std::uint64_t kVersion = 1;
constexpr std::uint32_t kMark = 0x4D52464A;  // "JFRM"; the checksum decides, the mark makes looking for frames cheap
constexpr std::size_t kWord = 8;

std::uint64_t checksum_of(const Header& header) {
  return digest_of(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, checksum))).low;
}

// salt: checksum of the file's header.
std::uint64_t checksum_of(const FrameHeader& frame, std::uint64_t salt, std::uint64_t position,
                          std::span<const std::byte> payload) {
  Hasher hasher;
  hasher.update_u64(salt);
  hasher.update_u64(position);
  hasher.update(&frame, offsetof(FrameHeader, checksum));
  hasher.update(payload);
  return hasher.finish().low;
}

template <class T>
T read_at(std::span<const std::byte> bytes, std::size_t position) {
  T out;
  std::memcpy(&out, bytes.data() + position, sizeof out);
  return out;
}

struct Frame {
  std::uint64_t synced = 0;
  std::span<const std::byte> payload;
  std::size_t end = 0;
};

std::optional<Frame> frame_at(std::span<const std::byte> bytes, std::size_t position, std::uint64_t salt) {
  KINTSUGI_ASSERT(position <= bytes.size());
  if (bytes.size() - position < sizeof(FrameHeader)) return {};
  const auto header = read_at<FrameHeader>(bytes, position);
  if (header.mark != kMark || header.payload_bytes > kJournalEntryLimit || header.payload_bytes % kWord != 0) return {};
  const auto rest = bytes.subspan(position + sizeof(FrameHeader));
  if (header.payload_bytes > rest.size()) return {};
  const auto payload = rest.first(header.payload_bytes);
  if (checksum_of(header, salt, position, payload) != header.checksum) return {};
  return Frame{header.synced, payload, position + sizeof(FrameHeader) + payload.size()};
}

// Whether a frame beyond `position` was written when what is at `position` was on the disk.
bool was_synced(std::span<const std::byte> bytes, std::size_t position, std::uint64_t salt) {
  for (std::size_t at = position + kWord; at < bytes.size(); at += kWord) {
    const std::optional<Frame> frame = frame_at(bytes, at, salt);
    if (frame && frame->synced > position) return true;
  }
  return false;
}

Error refusal(std::string_view path, std::string_view why, std::string_view what_next) {
  return {ErrorAction::tell_user, fmt::format("{}: {}; {}", path, why, what_next)};
}

Result<Header> parse_header(std::span<const std::byte> bytes, std::string_view path) {
  constexpr std::string_view kMove = "if the cluster's history may be lost, move the file away";
  if (bytes.size() < sizeof(Header) || read_at<Header>(bytes, 0).magic != kMagic) {
    return refusal(path, "this is no journal of kintsugi", kMove);
  }
  const auto header = read_at<Header>(bytes, 0);
  if (header.version != kVersion) {
    return refusal(path,
                   fmt::format("a journal of version {}, this kintsugi reads version {}", header.version, kVersion),
                   "use the kintsugi that wrote it");
  }
  if (checksum_of(header) != header.checksum) return refusal(path, "its header is damaged", kMove);
  return header;
}

}  // namespace

JournalFormat::JournalFormat(std::uint64_t cluster_id) {
  Header header{kMagic, kVersion, cluster_id, 0};
  header.checksum = checksum_of(header);
  const auto bytes = std::as_bytes(std::span(&header, 1));
  header_.assign(bytes.begin(), bytes.end());
}

Result<std::vector<std::byte>> JournalFormat::frame(const JournalEntry& entry, std::uint64_t position,
                                                    std::uint64_t synced) const {
  KINTSUGI_ASSERT(position >= header_.size() && position % kWord == 0 && synced <= position);
  const std::vector<std::byte> payload = encode_entry(entry);
  KINTSUGI_ASSERT(payload.size() % kWord == 0);
  if (payload.size() > kJournalEntryLimit) {
    return Error{ErrorAction::tell_user,
                 fmt::format("a journal entry of {} is too large, the limit is {}; shorten the job file",
                             format_bytes(payload.size()), format_bytes(kJournalEntryLimit))};
  }
  FrameHeader header{kMark, static_cast<std::uint32_t>(payload.size()), synced, 0};
  header.checksum = checksum_of(header, read_at<Header>(header_, 0).checksum, position, payload);
  const auto bytes = std::as_bytes(std::span(&header, 1));
  std::vector<std::byte> out(bytes.begin(), bytes.end());
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

Result<std::vector<std::byte>> JournalFormat::file(std::span<const JournalEntry> entries) const {
  std::vector<std::byte> out = header_;
  for (const JournalEntry& entry : entries) {
    KINTSUGI_TRY_ASSIGN(const std::vector<std::byte> bytes, frame(entry, out.size(), out.size()));
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

Result<JournalContents> parse_journal(std::span<const std::byte> bytes, std::string_view path) {
  KINTSUGI_TRY_ASSIGN(const Header header, parse_header(bytes, path));
  JournalContents out{.cluster_id = header.cluster_id, .good_bytes = sizeof(Header)};
  while (const std::optional<Frame> frame = frame_at(bytes, out.good_bytes, header.checksum)) {
    Result<JournalEntry> entry = decode_entry(frame->payload);
    if (!entry) {
      return refusal(path,
                     fmt::format("entry {} at byte {}: {}", out.entries.size(), out.good_bytes, entry.error().message),
                     "use the kintsugi that wrote it");
    }
    out.entries.push_back(std::move(*entry));
    out.good_bytes = frame->end;
  }
  out.dropped_bytes = bytes.size() - out.good_bytes;
  if (was_synced(bytes, out.good_bytes, header.checksum)) {
    return refusal(path, fmt::format("damaged at byte {}, and good entries follow", out.good_bytes),
                   "restore the file from a backup, or end the cluster's nodes and move the file away");
  }
  return out;
}

}  // namespace kintsugi
