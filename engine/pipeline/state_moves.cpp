#include "engine/pipeline/state_moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/units.hpp"

namespace kintsugi {

using kernels::View;
using transport::MessageKey;
using transport::MessageKind;

namespace collectives = transport::collectives;

namespace {

// Fits the bounce area of a carrier several times: a copy is not in memory that peers may read.
constexpr std::int64_t kPieceElements = static_cast<std::int64_t>(4 * kMiB / sizeof(float));

std::vector<View> pieces(const ShardCopy& copy) {
  std::vector<View> all;
  for (const View& array : {copy.master(), copy.moment1(), copy.moment2()}) {
    for (std::int64_t first = 0; first < array.count; first += kPieceElements) {
      all.push_back(array.slice(first, std::min(kPieceElements, array.count - first)));
    }
  }
  return all;
}

MessageKey key(const ShardCopy& copy, Step version, std::uint32_t part) {
  return {MessageKind::state, version, copy.shard().id.value, part};
}

}  // namespace

void StateMoves::enqueue(const Transition& transition) {
  const ShardVersion version{transition.step, transition.updates, {}, parts_.incarnation};
  for (const ShardMove& move : transition.moves) {
    if (move.to != parts_.self && (move.from != parts_.self || move.take_over)) continue;
    const ShardCopy* const copy = parts_.state.find(move.shard);
    KINTSUGI_ASSERT_MSG(copy != nullptr, "both ends of a move have memory for its copy");
    parts_.stream.enqueue("move a copy", [this, move, copy, version]() -> Result<void> {
      if (move.to != parts_.self) return send(*copy, move.to, version);
      if (!move.take_over) return receive(*copy, move.from, version);
      KINTSUGI_TRY(check_held(*copy, version.version));
      return {};
    });
  }
  parts_.communicator.drain(sent_);
}

Result<void> StateMoves::send(const ShardCopy& copy, RankId to, const ShardVersion& version) {
  KINTSUGI_TRY(check_held(copy, version.version));
  Communicator& c = parts_.communicator;
  const auto post = [&](std::uint32_t part, std::span<const std::byte> bytes) -> Result<void> {
    KINTSUGI_TRY_ASSIGN(const auto ticket, c.peers().send(to, key(copy, version.version, part), bytes, c.deadline()));
    sent_.push_back(ticket);
    return {};
  };
  KINTSUGI_TRY(post(0, copy.slot().digest_bytes()));
  std::uint32_t part = 0;
  for (const View& piece : pieces(copy)) {
    KINTSUGI_TRY(post(++part, {parts_.device.host_address(piece), piece.bytes()}));
  }
  return {};
}

Result<void> StateMoves::receive(const ShardCopy& copy, RankId from, const ShardVersion& version) {
  Communicator& c = parts_.communicator;
  copy.slot().format(parts_.incarnation);
  const auto take = [&](std::uint32_t part, std::size_t bytes, const auto& use) -> Result<void> {
    KINTSUGI_TRY_ASSIGN(const auto arrival,
                        c.peers().receive(from, key(copy, version.version, part), bytes, c.deadline()));
    const collectives::HeldArrival held(c.peers(), arrival);
    use(held.bytes().data());
    return {};
  };
  ShardVersion stable = version;
  KINTSUGI_TRY(take(0, sizeof(Digest), [&](const std::byte* at) { std::memcpy(&stable.digest, at, sizeof(Digest)); }));
  std::uint32_t part = 0;
  for (const View& piece : pieces(copy)) {
    KINTSUGI_TRY(take(++part, piece.bytes(),
                      [&](const std::byte* at) { parts_.device.copy_to_device(parts_.stream, piece, at); }));
  }
  KINTSUGI_TRY_ASSIGN(const Digest found, digest_of(copy));
  if (found != stable.digest) {
    return Error{ErrorAction::end_generation,
                 fmt::format("shard {} came from rank {} with digest {} and has {} here: it was damaged on the way",
                             copy.shard().id.value, from.value, to_hex(stable.digest), to_hex(found))};
  }
  copy.slot().finish(stable);
  return {};
}

Result<void> StateMoves::check_held(const ShardCopy& copy, Step version) {
  const std::optional<ShardVersion> held = copy.slot().stable();
  KINTSUGI_ASSERT_MSG(held && held->version == version, "what is sent or taken over is STABLE at the cut");
  KINTSUGI_TRY_ASSIGN(const Digest found, digest_of(copy));
  if (found == held->digest) return {};
  copy.slot().begin(parts_.incarnation);
  return Error{ErrorAction::end_generation,
               fmt::format("the copy of shard {} at rank {} has digest {}, but its header says {}: its memory was "
                           "damaged; another copy must be taken",
                           copy.shard().id.value, parts_.self.value, to_hex(found), to_hex(held->digest))};
}

Result<Digest> StateMoves::digest_of(const ShardCopy& copy) {
  Digest found;
  parts_.device.ops().state_digest(parts_.stream, parts_.digest, copy.master(), copy.moment1(), copy.moment2());
  parts_.device.copy_to_host(parts_.stream, &found, parts_.digest);
  return found;
}

}  // namespace kintsugi
