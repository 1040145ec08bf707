// The shared memory of one generation's ranks on one node: for each ordered pair a ring of descriptors and, the other
// way, a ring of returned credits; for each rank a doorbell and a bounce area. One writer a word (Lamport, "Proving the
// correctness of multiprocess programs", 1977): a process that dies at any instruction leaves nothing locked.
//
// A sender holds `slots` credits a peer. A message takes one until its receiver releases it, in any order, so neither
// ring can ever overflow and a message held for long delays no other.
//
// Everything here may hold garbage once a peer misbehaves: values are copied out first and checked after.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/point_to_point.hpp"
#include "transport/shm/shared_memory.hpp"

namespace kintsugi::transport::shm {

constexpr std::size_t kInlineBytes = 248;  // a descriptor fills five cache lines

struct RingShape {
  std::uint32_t ranks = 0;
  std::uint32_t slots = 512;             // unreleased messages a pair; a power of two
  std::size_t bounce_bytes = 64U << 20;  // per rank: the most that may be copied and unreleased; pages come when used
};

// Where a message's bytes lie. Regions from kFirstArena on are arenas of the sender, in the order of registration.
constexpr std::uint32_t kInline = 0;
constexpr std::uint32_t kBounce = 1;
constexpr std::uint32_t kFirstArena = 2;

struct Descriptor {
  Fence fence;
  MessageKey key;
  std::uint32_t region = kInline;
  std::uint64_t offset = 0;  // in the region; 0 when inline
  std::uint64_t length = 0;
  std::byte payload[kInlineBytes];
};

// Rung by whoever wrote something for this rank. Waiters sleep on `word`; the counts spare the others the system call.
struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> word;
  std::atomic<std::uint32_t> awaiting_messages;
  std::atomic<std::uint32_t> awaiting_credits;
  std::atomic<std::uint32_t> attached;  // a segment serves one carrier a rank
};

struct RingIndex {
  alignas(64) std::atomic<std::uint64_t> sent;      // by the sender: descriptors written so far
  alignas(64) std::atomic<std::uint64_t> returned;  // by the receiver: credits returned so far
};

// The node process, once a generation. Error{tell_user} when memory is short.
Result<FileDescriptor> create_ring_segment(const RingShape& shape);

class RingSegment {
 public:
  // Error{tell_user} when the descriptor is no ring segment.
  static Result<RingSegment> attach(int memfd);

  const RingShape& shape() const { return shape_; }
  Doorbell& doorbell(std::uint32_t rank) const;
  RingIndex& index(std::uint32_t from, std::uint32_t to) const;
  // Message number `n` (from 1) of the pair.
  Descriptor& descriptor(std::uint32_t from, std::uint32_t to, std::uint64_t n) const;
  // The n-th credit returned (from 1): the number of the message it belongs to.
  std::uint64_t& credit(std::uint32_t from, std::uint32_t to, std::uint64_t n) const;
  std::span<std::byte> bounce(std::uint32_t rank) const;

 private:
  RingSegment(Mapping mapping, RingShape shape) : mapping_(std::move(mapping)), shape_(shape) {}
  std::byte* pair(std::uint32_t from, std::uint32_t to) const;

  Mapping mapping_;
  RingShape shape_;  // copied at attach: never read again from shared memory
};

// Futex on the doorbell. `mask` says what woke or may wake: messages, credits or both.
constexpr std::uint32_t kMessageBit = 1;
constexpr std::uint32_t kCreditBit = 2;
void ring(Doorbell& doorbell, std::uint32_t mask);
// Returns false when `deadline` passed; true may be spurious.
bool sleep_on(Doorbell& doorbell, std::uint32_t seen, std::uint32_t mask, Instant deadline);

}  // namespace kintsugi::transport::shm
