#include "transport/shm/shm_carrier.hpp"

#include <algorithm>
#include <cstring>

#include "base/units.hpp"
#include "transport/describe.hpp"

namespace kintsugi::transport::shm {
namespace {

constexpr std::size_t kMaxArenas = 62;

class CountedWaiter {
 public:
  CountedWaiter(Doorbell& bell, std::uint32_t mask) : bell_(bell), mask_(mask) { count(1); }
  ~CountedWaiter() { count(~std::uint32_t{0}); }
  CountedWaiter(const CountedWaiter&) = delete;
  CountedWaiter& operator=(const CountedWaiter&) = delete;

 private:
  void count(std::uint32_t delta) {
    if ((mask_ & kMessageBit) != 0) bell_.awaiting_messages.fetch_add(delta);
    if ((mask_ & kCreditBit) != 0) bell_.awaiting_credits.fetch_add(delta);
  }
  Doorbell& bell_;
  std::uint32_t mask_;
};

Error corrupt(RankId peer, const std::string& what) {
  return {ErrorAction::end_generation, "rank " + to_string(peer) + " wrote garbage to the ring segment (" + what +
                                           "); end the generation and replace that process"};
}

}  // namespace

Result<std::unique_ptr<ShmCarrier>> ShmCarrier::open(Config config, int ring_segment) {
  KINTSUGI_TRY_ASSIGN(RingSegment segment, RingSegment::attach(ring_segment));
  if (segment.shape().ranks != config.node_ranks.size()) {
    return Error{ErrorAction::tell_user, "ring segment for " + std::to_string(segment.shape().ranks) +
                                             " ranks, plan with " + std::to_string(config.node_ranks.size()) +
                                             " on this node"};
  }
  std::unique_ptr<ShmCarrier> carrier(new ShmCarrier(std::move(config), std::move(segment)));
  if (carrier->segment_.doorbell(carrier->own_index_).attached.exchange(1) != 0) {
    return Error{ErrorAction::tell_user, "the ring segment already served a carrier of rank " +
                                             to_string(carrier->config_.self) + "; create one for each generation"};
  }
  return carrier;
}

ShmCarrier::ShmCarrier(Config config, RingSegment segment)
    : config_(std::move(config)), segment_(std::move(segment)), bounce_(segment_.shape().bounce_bytes) {
  bool found = false;
  for (std::uint32_t i = 0; i < config_.node_ranks.size(); ++i) {
    if (config_.node_ranks[i] == config_.self) {
      own_index_ = i;
      found = true;
      continue;
    }
    Peer& p = peers_.emplace_back();
    p.rank = config_.node_ranks[i];
    p.index = i;
  }
  KINTSUGI_ASSERT_MSG(found, "node_ranks names the rank itself");
}

ShmCarrier::~ShmCarrier() = default;

void ShmCarrier::register_own_arena(std::span<const std::byte> own) {
  const std::lock_guard lock(mutex_);
  KINTSUGI_ASSERT(own_arenas_.size() < kMaxArenas);
  own_arenas_.push_back(own);
}

Result<void> ShmCarrier::register_peer_arena(RankId owner, int memfd) {
  const std::lock_guard lock(mutex_);
  Peer& p = peer(owner);
  KINTSUGI_ASSERT(p.arenas.size() < kMaxArenas);
  KINTSUGI_TRY_ASSIGN(Mapping mapping, Mapping::map(memfd, Access::read));
  p.arenas.push_back(std::move(mapping));
  return {};
}

ShmCarrier::Peer& ShmCarrier::peer(RankId rank) {
  const auto found = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.rank == rank; });
  KINTSUGI_ASSERT_MSG(found != peers_.end(), "a peer is another rank of this node");
  return *found;
}

// --- waiting ---------------------------------------------------------------------------------------------------------

// True when ready, false when the deadline passed. Counted as a waiter only after a first look.
template <class Ready>
Result<bool> ShmCarrier::wait_until(std::unique_lock<std::mutex>& lock, std::uint32_t mask, Instant deadline,
                                    Ready ready) {
  if (cancelled_) return *cancelled_;
  poll();
  if (ready()) return true;
  Doorbell& bell = segment_.doorbell(own_index_);
  const CountedWaiter counted(bell, mask);
  for (bool in_time = true;;) {
    const std::uint32_t seen = bell.word.load();
    if (cancelled_) return *cancelled_;
    poll();
    if (ready()) return true;
    if (cancelled_) return *cancelled_;
    if (!in_time) return false;
    lock.unlock();
    in_time = sleep_on(bell, seen, mask, deadline);
    lock.lock();
  }
}

void ShmCarrier::fail(Error why) {
  if (!cancelled_) cancelled_ = std::move(why);
  ring(segment_.doorbell(own_index_), kMessageBit | kCreditBit);
}

void ShmCarrier::cancel(const Error& why) {
  const std::lock_guard lock(mutex_);
  fail(why);
}

// --- draining what peers wrote --------------------------------------------------------------------------------------

void ShmCarrier::poll() {
  for (Peer& p : peers_) {
    if (cancelled_) return;
    take_credits(p);
    take_messages(p);
  }
}

void ShmCarrier::take_credits(Peer& from) {
  const std::uint64_t returned = segment_.index(own_index_, from.index).returned.load(std::memory_order_acquire);
  if (returned - from.credits_seen > from.sent - from.credits_seen) return fail(corrupt(from.rank, "credit count"));
  while (from.credits_seen < returned) {
    const std::uint64_t number = segment_.credit(own_index_, from.index, ++from.credits_seen);
    const auto sent = from.unreleased.find(number);
    if (sent == from.unreleased.end()) return fail(corrupt(from.rank, "credit for no message"));
    if (sent->second.bounce_bytes != 0) bounce_.give_back(sent->second.bounce_offset, sent->second.bounce_bytes);
    from.unreleased.erase(sent);
  }
}

void ShmCarrier::take_messages(Peer& from) {
  const std::uint64_t sent = segment_.index(from.index, own_index_).sent.load(std::memory_order_acquire);
  const std::uint64_t unreleased = from.received - from.credits_returned;
  if (sent - from.received > segment_.shape().slots - unreleased) return fail(corrupt(from.rank, "message count"));
  while (from.received < sent) {
    Descriptor d;
    std::memcpy(&d, &segment_.descriptor(from.index, own_index_, ++from.received), sizeof d);
    if (d.fence != config_.fence) {
      ++from.traffic.stale_dropped;
      return_credit(from, from.received);
      continue;
    }
    auto message = std::make_unique<Message>();
    message->number = from.received;
    const auto place = locate(from, d);
    if (!place) return fail(place.error());
    if (d.region == kInline) {
      std::memcpy(message->payload.data(), d.payload, d.length);
      message->bytes = std::span(message->payload).first(d.length);
    } else {
      message->bytes = place.value();
    }
    ++from.traffic.messages_received;
    from.traffic.bytes_received += d.length;
    if (!from.arrived.emplace(d.key, std::move(message)).second) {
      return fail(corrupt(from.rank, describe(d.key) + " sent twice"));
    }
  }
}

// Empty for inline bytes, whose length it has checked.
Result<std::span<const std::byte>> ShmCarrier::locate(const Peer& from, const Descriptor& d) const {
  std::span<const std::byte> region;
  if (d.region == kInline) {
    if (d.length <= kInlineBytes && d.offset == 0) return region;
    return corrupt(from.rank, "inline length " + std::to_string(d.length));
  }
  if (d.region == kBounce) {
    region = segment_.bounce(from.index);
  } else if (d.region - kFirstArena < from.arenas.size()) {
    region = from.arenas[d.region - kFirstArena].bytes();
  } else {
    return corrupt(from.rank, "arena " + std::to_string(d.region - kFirstArena) + " of " +
                                  std::to_string(from.arenas.size()) + " registered here");
  }
  if (d.offset > region.size() || d.length > region.size() - d.offset) {
    return corrupt(from.rank, "bytes beyond their region");
  }
  return region.subspan(d.offset, d.length);
}

void ShmCarrier::return_credit(Peer& to, std::uint64_t number) {
  segment_.credit(to.index, own_index_, ++to.credits_returned) = number;
  segment_.index(to.index, own_index_).returned.store(to.credits_returned, std::memory_order_release);
  ring(segment_.doorbell(to.index), kCreditBit);
}

// --- the interface --------------------------------------------------------------------------------------------------

std::optional<ShmCarrier::Placement> ShmCarrier::place(std::span<const std::byte> bytes) {
  if (bytes.size() <= kInlineBytes) return Placement{};
  for (std::size_t i = 0; i < own_arenas_.size(); ++i) {
    const auto arena = own_arenas_[i];
    if (bytes.data() >= arena.data() && bytes.data() + bytes.size() <= arena.data() + arena.size()) {
      return Placement{static_cast<std::uint32_t>(kFirstArena + i),
                       static_cast<std::uint64_t>(bytes.data() - arena.data())};
    }
  }
  if (const auto offset = bounce_.take(bytes.size())) return Placement{kBounce, *offset};
  return std::nullopt;
}

Result<SendTicket> ShmCarrier::send(RankId to, const MessageKey& key, std::span<const std::byte> bytes,
                                    Instant deadline) {
  std::unique_lock lock(mutex_);
  Peer& p = peer(to);
  std::optional<Placement> at;
  const auto can_send = [&] {
    if (p.unreleased.size() >= segment_.shape().slots) return false;
    at = place(bytes);
    if (!at && bytes.size() > segment_.shape().bounce_bytes) return true;
    return at.has_value();
  };
  KINTSUGI_TRY_ASSIGN(const bool in_time, wait_until(lock, kCreditBit, deadline, can_send));
  if (!in_time) return deadline_passed("waiting for room in the queue to", to, describe(key));
  if (!at) {
    return Error{ErrorAction::tell_user, describe(key) + ": " + format_bytes(bytes.size()) +
                                             " outside any arena exceed " + "the bounce area of " +
                                             format_bytes(segment_.shape().bounce_bytes) +
                                             "; put them in a registered arena"};
  }
  const std::uint64_t number = ++p.sent;
  Descriptor& d = segment_.descriptor(own_index_, p.index, number);
  d.fence = config_.fence;
  d.key = key;
  d.region = at->region;
  d.offset = at->offset;
  d.length = bytes.size();
  Sent sent{at->region >= kFirstArena, 0, 0};
  if (at->region == kInline && !bytes.empty()) std::memcpy(d.payload, bytes.data(), bytes.size());
  if (at->region == kBounce) {
    std::memcpy(segment_.bounce(own_index_).data() + at->offset, bytes.data(), bytes.size());
    sent = {false, at->offset, bytes.size()};
  }
  p.unreleased.emplace(number, sent);
  ++p.traffic.messages_sent;
  p.traffic.bytes_sent += bytes.size();
  segment_.index(own_index_, p.index).sent.store(number, std::memory_order_release);
  ring(segment_.doorbell(p.index), kMessageBit);
  return SendTicket{to, number};
}

Result<void> ShmCarrier::wait_sent(SendTicket ticket, Instant deadline) {
  std::unique_lock lock(mutex_);
  Peer& p = peer(ticket.to);
  KINTSUGI_ASSERT(ticket.number > 0 && ticket.number <= p.sent);
  const auto is_free = [&] {
    const auto sent = p.unreleased.find(ticket.number);
    return sent == p.unreleased.end() || !sent->second.lent;
  };
  KINTSUGI_TRY_ASSIGN(const bool in_time, wait_until(lock, kCreditBit, deadline, is_free));
  if (!in_time) {
    return deadline_passed("waiting for the release by", ticket.to, "message " + std::to_string(ticket.number));
  }
  return {};
}

Result<Arrival> ShmCarrier::receive(RankId from, const MessageKey& key, std::size_t bytes, Instant deadline) {
  std::unique_lock lock(mutex_);
  Peer& p = peer(from);
  auto found = p.arrived.end();
  const auto is_here = [&] { return (found = p.arrived.find(key)) != p.arrived.end(); };
  KINTSUGI_TRY_ASSIGN(const bool in_time, wait_until(lock, kMessageBit, deadline, is_here));
  if (!in_time) {
    return deadline_passed("waiting for", from, describe(key) + ", " + describe_size(bytes));
  }
  const std::size_t size = found->second->bytes.size();
  if (bytes == kAnySize ? size > kMaxSmallMessageBytes : size != bytes) return wrong_size(from, key, bytes, size);
  const std::uint64_t number = found->second->number;
  const Arrival arrival{from, found->second->bytes, number};
  p.being_read.emplace(number, std::move(found->second));
  p.arrived.erase(found);
  return arrival;
}

void ShmCarrier::release(const Arrival& arrival) {
  const std::lock_guard lock(mutex_);
  Peer& p = peer(arrival.from);
  const std::size_t erased = p.being_read.erase(arrival.handle);
  KINTSUGI_ASSERT_MSG(erased == 1, "an arrival is released once");
  return_credit(p, arrival.handle);
}

std::map<RankId, PeerTraffic> ShmCarrier::traffic() const {
  const std::lock_guard lock(mutex_);
  std::map<RankId, PeerTraffic> all;
  for (const Peer& p : peers_) all.emplace(p.rank, p.traffic);
  return all;
}

}  // namespace kintsugi::transport::shm
