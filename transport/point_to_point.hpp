// Who talks to whom on the data plane: tagged messages between ranks of one generation.
//
// Calls are made from work that runs on a device stream (kernels::Stream::enqueue) and may block there; the host never
// blocks on a peer. A message is matched by (source, key), whatever the order of arrival. Bytes are lent, not copied,
// where the carrier can: an Arrival is readable in place until released, and the sender's bytes must stay unchanged
// until its ticket is done.
//
// A PointToPoint belongs to one generation. It is fenced by construction: it only ever accepts messages that carry its
// own (job, lineage, generation), and `cancel` ends every wait, present and future, on every thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>

#include "base/clock.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"

namespace kintsugi::transport {

enum class MessageKind : std::uint8_t {
  activation = 1,       // item: stage boundary, part: microbatch of the step
  activation_gradient,  // likewise
  partial_sum,          // item: shard, part: (use index << 16) | first lane of the tree node
  reduced_gradient,     // item: shard
  weights,              // item: shard; step: the version
  contribution,         // vote: towards the root of the control tree; item: phase
  decision,             // vote: from the root
  state,                // a copy of a shard that changes hands; item: shard, part: piece; step: the version
};

// For receive: a message of any size up to kMaxSmallMessageBytes.
constexpr std::size_t kAnySize = SIZE_MAX;
constexpr std::size_t kMaxSmallMessageBytes = 64 * 1024;

// Names one message of a generation; unique per (source, destination).
struct MessageKey {
  MessageKind kind = MessageKind::activation;
  Step step;
  std::uint32_t item = 0;
  std::uint32_t part = 0;
  auto operator<=>(const MessageKey&) const = default;
};

// What every message of this object carries and every receiver checks.
struct Fence {
  JobId job;
  Lineage lineage;
  Generation generation;
  auto operator<=>(const Fence&) const = default;
};

struct SendTicket {
  RankId to;
  std::uint64_t number = 0;  // per peer, from 1
};

// A message that has arrived. `bytes` stay readable until release.
struct Arrival {
  RankId from;
  std::span<const std::byte> bytes;
  std::uint64_t handle = 0;  // the carrier's own
};

struct PeerTraffic {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t stale_dropped = 0;  // messages of another generation, dropped and counted
};

class PointToPoint {
 public:
  virtual ~PointToPoint() = default;

  // Lends `bytes` to `to`, or copies them where they do not lie in memory registered with the carrier. Blocks only
  // while the bounded queue to that peer is full, until `deadline`.
  virtual Result<SendTicket> send(RankId to, const MessageKey& key, std::span<const std::byte> bytes,
                                  Instant deadline) = 0;
  // Until the peer has released the message (or the carrier has taken a copy): the bytes may be overwritten.
  virtual Result<void> wait_sent(SendTicket ticket, Instant deadline) = 0;
  // Blocks until the message is here. Error{end_generation} when its size is not `bytes`, when the peer is gone or the
  // deadline has passed; the text names the peer and what was awaited.
  virtual Result<Arrival> receive(RankId from, const MessageKey& key, std::size_t bytes, Instant deadline) = 0;
  virtual void release(const Arrival& arrival) = 0;

  // Thread safe; the first reason wins. Every call blocked now or made later returns `why`.
  virtual void cancel(const Error& why) = 0;
  virtual std::map<RankId, PeerTraffic> traffic() const = 0;
  // Peers that the network has given up on: their end was reset, or nothing came from them for too long. Inside a node
  // there are none: the node sees processes end.
  virtual std::set<RankId> lost_peers() const { return {}; }
};

}  // namespace kintsugi::transport
