// The carrier inside a node. Bytes in the sender's arena are lent: a descriptor names (arena, offset, length) and the
// receiver reads them in its own read-only mapping. Other bytes travel inside the descriptor or through the sender's
// bounce area. A rank sleeps on one word for everything; nothing spins.
//
// No lock is shared, so a dead peer blocks nobody: its messages stop, and the waits for them end by deadline or cancel.
// Peers that write garbage end the generation, nothing else.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "transport/point_to_point.hpp"
#include "transport/shm/block_allocator.hpp"
#include "transport/shm/ring_segment.hpp"

namespace kintsugi::transport::shm {

// Thread safe. One a rank and generation, over a fresh segment.
class ShmCarrier final : public PointToPoint {
 public:
  struct Config {
    RankId self;
    std::vector<RankId> node_ranks;  // all ranks of this node, in the order every one of them uses
    Fence fence;
  };

  // Error{tell_user}: no ring segment, another number of ranks, or the segment already serves a carrier of `self`.
  static Result<std::unique_ptr<ShmCarrier>> open(Config config, int ring_segment);
  ~ShmCarrier() override;

  // Bytes of `own` (a mapping of this rank's memfd, offset 0 first) are lent from now on. At most 62 arenas. Every rank
  // registers the arenas of an owner in one order, before the first message that lies in one.
  void register_own_arena(std::span<const std::byte> own);
  // Maps the memfd of another rank, read-only, until this carrier goes.
  Result<void> register_peer_arena(RankId owner, int memfd);

  Result<SendTicket> send(RankId to, const MessageKey& key, std::span<const std::byte> bytes,
                          Instant deadline) override;
  Result<void> wait_sent(SendTicket ticket, Instant deadline) override;
  Result<Arrival> receive(RankId from, const MessageKey& key, std::size_t bytes, Instant deadline) override;
  void release(const Arrival& arrival) override;
  void cancel(const Error& why) override;
  std::map<RankId, PeerTraffic> traffic() const override;

 private:
  struct Message {
    std::uint64_t number = 0;
    std::span<const std::byte> bytes;  // shared memory, or `payload`
    std::array<std::byte, kInlineBytes> payload;
  };
  struct Sent {
    bool lent = false;
    std::size_t bounce_offset = 0;
    std::size_t bounce_bytes = 0;  // 0: nothing to give back
  };
  struct Peer {
    RankId rank;
    std::uint32_t index = 0;
    std::vector<Mapping> arenas;
    // Sending: numbers from 1; unreleased messages hold a credit each.
    std::uint64_t sent = 0;
    std::uint64_t credits_seen = 0;
    std::map<std::uint64_t, Sent> unreleased;
    // Receiving.
    std::uint64_t received = 0;
    std::uint64_t credits_returned = 0;
    std::map<MessageKey, std::unique_ptr<Message>> arrived;        // not yet asked for
    std::map<std::uint64_t, std::unique_ptr<Message>> being_read;  // by number
    PeerTraffic traffic;
  };
  struct Placement {
    std::uint32_t region = kInline;
    std::uint64_t offset = 0;
  };

  ShmCarrier(Config config, RingSegment segment);
  Peer& peer(RankId rank);
  std::optional<Placement> place(std::span<const std::byte> bytes);
  void poll();
  void take_credits(Peer& from);
  void take_messages(Peer& from);
  Result<std::span<const std::byte>> locate(const Peer& from, const Descriptor& d) const;
  void return_credit(Peer& to, std::uint64_t number);
  void fail(Error why);
  template <class Ready>
  Result<bool> wait_until(std::unique_lock<std::mutex>& lock, std::uint32_t mask, Instant deadline, Ready ready);

  const Config config_;
  RingSegment segment_;
  std::uint32_t own_index_ = 0;
  std::vector<std::span<const std::byte>> own_arenas_;
  mutable std::mutex mutex_;  // this process's threads only; never held while asleep
  BlockAllocator bounce_;
  std::vector<Peer> peers_;
  std::optional<Error> cancelled_;
};

}  // namespace kintsugi::transport::shm
