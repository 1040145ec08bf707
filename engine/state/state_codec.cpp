#include "engine/state/state_codec.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/assert.hpp"
#include "schemas/state.capnp.h"

namespace kintsugi {

namespace {

constexpr std::uint64_t kShardMagic = 0x4452414853544E4B;   // "KNTSHARD", little-endian
constexpr std::uint64_t kStateMagic = 0x45544154'53544E4B;  // "KNTSTATE"
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kFirstIntegerByte = 16;
constexpr std::int64_t kMaxOffset = std::int64_t{1} << 48;       // elements
constexpr std::uint64_t kMaxDimension = std::uint64_t{1} << 31;  // rows or columns

Error damaged(const std::string& source, const std::string& what) {
  return {ErrorAction::tell_user, source + ": " + what + ". The file is damaged: resume from another save."};
}

// One segment, as schemas/state.capnp promises to readers without Cap'n Proto.
std::vector<std::byte> to_bytes(capnp::MallocMessageBuilder& message) {
  KINTSUGI_ASSERT_MSG(message.getSegmentsForOutput().size() == 1, "the first segment was made large enough");
  const kj::Array<capnp::word> words = capnp::messageToFlatArray(message);
  const auto bytes = words.asBytes();
  std::vector<std::byte> out(bytes.size());
  std::memcpy(out.data(), bytes.begin(), bytes.size());
  return out;
}

template <class Builder>
void put_position(Builder& to, const StatePosition& position, Lineage lineage) {
  to.setVersion(kVersion);
  to.setJobIdentityHigh(position.job_identity.high);
  to.setJobIdentityLow(position.job_identity.low);
  to.setLineage(lineage.value);
  to.setStep(position.step.value);
  to.setUpdates(position.updates);
  to.setDataPosition(position.data_position);
}

template <class Reader>
StatePosition get_position(const Reader& from) {
  return {{from.getJobIdentityHigh(), from.getJobIdentityLow()},
          Step{from.getStep()},
          from.getUpdates(),
          from.getDataPosition()};
}

template <class Builder>
void put_shard(Builder& to, const SavedShard& saved) {
  to.setShard(saved.shard.id.value);
  to.setGroup(saved.shard.group.value);
  to.setOffset(static_cast<std::uint64_t>(saved.shard.offset));
  to.setCount(static_cast<std::uint64_t>(saved.shard.count));
  to.setDigestHigh(saved.digest.high);
  to.setDigestLow(saved.digest.low);
}

// Empty if a number is out of range.
template <class Reader>
std::optional<SavedShard> get_shard(const Reader& from) {
  if (from.getShard() > UINT32_MAX || from.getGroup() > UINT32_MAX || from.getOffset() > std::uint64_t{kMaxOffset} ||
      from.getCount() == 0 || from.getCount() > std::uint64_t{kMaxShardElements}) {
    return std::nullopt;
  }
  return SavedShard{.shard = {.id = ShardId{static_cast<std::uint32_t>(from.getShard())},
                              .group = GroupId{static_cast<std::uint32_t>(from.getGroup())},
                              .offset = static_cast<std::int64_t>(from.getOffset()),
                              .count = static_cast<std::int64_t>(from.getCount())},
                    .digest = {from.getDigestHigh(), from.getDigestLow()}};
}

std::optional<SavedParameter> get_parameter(const schemas::SavedParameter::Reader& from) {
  if (from.getGroup() > UINT32_MAX || from.getOffset() > std::uint64_t{kMaxOffset} || from.getRows() > kMaxDimension ||
      from.getColumns() > kMaxDimension) {
    return std::nullopt;
  }
  return SavedParameter{.name = from.getName().cStr(),
                        .group = GroupId{static_cast<std::uint32_t>(from.getGroup())},
                        .offset = static_cast<std::int64_t>(from.getOffset()),
                        .rows = static_cast<std::int64_t>(from.getRows()),
                        .columns = static_cast<std::int64_t>(from.getColumns())};
}

// Runs `decode` on the message; what Cap'n Proto throws at hostile bytes becomes an Error.
template <class Value, class Decode>
Result<Value> with_message(std::span<const std::byte> bytes, const std::string& source, Decode decode) {
  if (bytes.size() % sizeof(capnp::word) != 0) return damaged(source, "its size is no multiple of 8 bytes");
  kj::Array<capnp::word> words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));
  std::memcpy(words.asBytes().begin(), bytes.data(), bytes.size());
  try {
    capnp::ReaderOptions limits;
    limits.traversalLimitInWords = 2 * words.size() + 64;
    limits.nestingLimit = 8;
    capnp::FlatArrayMessageReader message(words, limits);
    return decode(message);
  } catch (const kj::Exception& thrown) {
    return damaged(source, std::string("not a valid message (") + thrown.getDescription().cStr() + ")");
  }
}

Result<StateManifest> read_manifest(const schemas::SavedState::Reader& from, const std::string& source) {
  if (from.getMagic() != kStateMagic) return damaged(source, "not a manifest of saved state");
  if (from.getVersion() != kVersion) {
    return Error{ErrorAction::tell_user, source + ": has version " + std::to_string(from.getVersion()) +
                                             "; this kintsugi reads version 1. Use the one that wrote it."};
  }
  StateManifest manifest{.position = get_position(from), .lineage = Lineage{from.getLineage()}, .job_yaml = {}};
  manifest.job_yaml = from.getJobYaml().cStr();
  manifest.state_digest = {from.getStateDigestHigh(), from.getStateDigestLow()};
  if (from.getShardCount() != from.getShards().size()) return damaged(source, "it counts other shards than it lists");
  for (const auto listed : from.getShards()) {
    const std::optional<SavedShard> shard = get_shard(listed);
    if (!shard) return damaged(source, "a number of shard " + std::to_string(listed.getShard()) + " is out of range");
    if (!manifest.shards.empty() && manifest.shards.back().shard.id >= shard->shard.id) {
      return damaged(source, "its shards are out of order");
    }
    manifest.shards.push_back(*shard);
  }
  for (const auto listed : from.getParameters()) {
    std::optional<SavedParameter> parameter = get_parameter(listed);
    if (!parameter)
      return damaged(source, "a number of parameter " + std::string(listed.getName().cStr()) + " is out of range");
    manifest.parameters.push_back(std::move(*parameter));
  }
  if (state_digest(manifest) != manifest.state_digest)
    return damaged(source, "its state digest is not that of its shards");
  return manifest;
}

}  // namespace

Digest state_digest(const StateManifest& manifest) {
  std::vector<ShardDigest> digests;
  for (const SavedShard& saved : manifest.shards) digests.push_back({saved.shard.id, saved.digest});
  return state_digest(manifest.position, digests);
}

std::vector<SavedParameter> saved_parameters(const std::vector<Parameter>& parameters) {
  std::vector<SavedParameter> saved;
  for (const Parameter& p : parameters) saved.push_back({p.name, p.group, p.offset, p.rows, p.columns});
  return saved;
}

std::vector<std::byte> encode_shard_header(const ShardFileHeader& header) {
  capnp::MallocMessageBuilder message;
  auto to = message.initRoot<schemas::ShardFileHeader>();
  to.setMagic(kShardMagic);
  put_position(to, header.position, header.lineage);
  put_shard(to, header.saved);
  std::vector<std::byte> bytes = to_bytes(message);
  KINTSUGI_ASSERT(bytes.size() <= kShardHeaderBytes);
  bytes.resize(kShardHeaderBytes);
  return bytes;
}

Result<ShardFileHeader> decode_shard_header(std::span<const std::byte> bytes, const std::string& source) {
  if (bytes.size() != kShardHeaderBytes) return damaged(source, "its header is cut");
  const auto decode = [&](capnp::MessageReader& message) -> Result<ShardFileHeader> {
    const auto from = message.getRoot<schemas::ShardFileHeader>();
    const std::optional<SavedShard> saved = get_shard(from);
    if (from.getMagic() != kShardMagic || !saved) return damaged(source, "not the header of a shard");
    const ShardFileHeader header{get_position(from), Lineage{from.getLineage()}, *saved};
    if (!std::ranges::equal(encode_shard_header(header), bytes))
      return damaged(source, "its header is not as it was written");
    return header;
  };
  return with_message<ShardFileHeader>(bytes, source, decode);
}

std::vector<std::byte> encode_manifest(const StateManifest& manifest) {
  std::size_t words = 64 + manifest.job_yaml.size() / 8 + 6 * manifest.shards.size();
  for (const SavedParameter& parameter : manifest.parameters) words += 7 + parameter.name.size() / 8;
  capnp::MallocMessageBuilder message(static_cast<unsigned>(words));
  auto to = message.initRoot<schemas::SavedState>();
  to.setMagic(kStateMagic);
  put_position(to, manifest.position, manifest.lineage);
  const Digest digest = state_digest(manifest);
  to.setStateDigestHigh(digest.high);
  to.setStateDigestLow(digest.low);
  to.setShardCount(manifest.shards.size());
  to.setJobYaml(manifest.job_yaml);
  auto shards = to.initShards(static_cast<unsigned>(manifest.shards.size()));
  for (unsigned i = 0; i < shards.size(); ++i) {
    auto shard = shards[i];
    put_shard(shard, manifest.shards[i]);
  }
  auto parameters = to.initParameters(static_cast<unsigned>(manifest.parameters.size()));
  for (unsigned i = 0; i < parameters.size(); ++i) {
    const SavedParameter& parameter = manifest.parameters[i];
    parameters[i].setName(parameter.name);
    parameters[i].setGroup(parameter.group.value);
    parameters[i].setOffset(static_cast<std::uint64_t>(parameter.offset));
    parameters[i].setRows(static_cast<std::uint64_t>(parameter.rows));
    parameters[i].setColumns(static_cast<std::uint64_t>(parameter.columns));
  }
  return to_bytes(message);
}

Result<StateManifest> decode_manifest(std::span<const std::byte> bytes, const std::string& source) {
  return with_message<StateManifest>(bytes, source, [&](capnp::MessageReader& message) {
    return read_manifest(message.getRoot<schemas::SavedState>(), source);
  });
}

bool looks_like_manifest(std::span<const std::byte> bytes) {
  std::uint64_t magic = 0;
  if (bytes.size() < kFirstIntegerByte + sizeof magic) return false;
  std::memcpy(&magic, bytes.data() + kFirstIntegerByte, sizeof magic);
  return magic == kStateMagic;
}

}  // namespace kintsugi
