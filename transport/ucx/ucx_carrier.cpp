#include "transport/ucx/ucx_carrier.hpp"

#include <chrono>

#include "transport/describe.hpp"
#include "transport/ucx/ucx_carrier_state.hpp"

namespace kintsugi::transport::ucx {

// --- messages in ----------------------------------------------------------------------------------------------------

// The peer a message is from, its credits taken; nothing when it belongs to another generation or is malformed.
UcxCarrier::Peer* UcxCarrier::admit(const TensorHeader& header) {
  const auto found = peers_.find(header.from);
  if (header.fence != config_.fence || found == peers_.end()) {
    if (found != peers_.end())
      ++found->second->traffic.stale_dropped;
    else
      ++stale_from_strangers_;
    return nullptr;
  }
  Peer& p = *found->second;
  p.greeted = true;
  p.silence = {};
  if (header.released > p.sent) {
    fail(peer_gone(p.rank, "it returned more credits than it was sent messages"));
    return nullptr;
  }
  if (header.released > p.acknowledged) {
    p.acknowledged = header.released;
    changed_.notify_all();
  }
  return &p;
}

bool UcxCarrier::accept(const TensorHeader& header, void* data, std::size_t bytes, bool is_offer) {
  Peer* p = admit(header);
  if (p == nullptr || cancelled_) return false;
  if (header.bytes != bytes || p->received - p->released >= config_.window) {
    fail(peer_gone(p->rank, "it broke the protocol with " + describe(header.key)));
    return false;
  }
  auto message = std::make_unique<Message>();
  message->carrier = this;
  message->peer = p;
  message->handle = ++p->received;
  message->bytes = bytes;
  Message& m = *message;
  if (!p->arrived.emplace(header.key, std::move(message)).second) {
    fail(peer_gone(p->rank, "it sent " + describe(header.key) + " twice"));
    return false;
  }
  ++p->traffic.messages_received;
  p->traffic.bytes_received += bytes;
  if (is_offer) {
    m.state = Message::State::offered;
    m.offer = data;
    p->offers.push_back(&m);
  } else {
    const auto* first = static_cast<const std::byte*>(data);
    m.small.assign(first, first + bytes);
  }
  changed_.notify_all();
  return is_offer;
}

// --- messages out ---------------------------------------------------------------------------------------------------

void UcxCarrier::post(Peer& p, std::uint64_t id, TensorHeader header, std::span<const std::byte> bytes) {
  header.fence = config_.fence;
  header.from = config_.self;
  header.bytes = bytes.size();
  header.released = p.credits_told = p.released;
  p.spoke = clock_.now();
  auto& outgoing = p.outgoing[id];
  outgoing.reset(new Outgoing{this, &p, id, encode(header)});
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.cb.send = &Callbacks::sent;
  parameters.user_data = outgoing.get();
  const unsigned kind = id < kFirstCreditId ? kDataMessage : kCreditMessage;
  Outgoing& o = *outgoing;
  const auto request =
      ucp_am_send_nbx(p.endpoint, kind, o.header.data(), o.header.size(), bytes.data(), bytes.size(), &parameters);
  if (request == nullptr)
    finish(o, UCS_OK);
  else if (UCS_PTR_IS_ERR(request))
    finish(o, UCS_PTR_STATUS(request));
  else
    ucp_worker_signal(worker_);  // the rest is the progress thread's
}

void UcxCarrier::finish(Outgoing& sent, ucs_status_t status) {
  Peer& p = *sent.peer;
  p.outgoing.erase(sent.id);
  if (status != UCS_OK) return lose(p, ucs_status_string(status));
  changed_.notify_all();
}

void UcxCarrier::lose(Peer& p, const std::string& why) {
  if (!p.lost) p.lost = peer_gone(p.rank, why);
  changed_.notify_all();
}

void UcxCarrier::fail(Error why) {
  if (!cancelled_) cancelled_ = std::move(why);
  changed_.notify_all();
}

UcxCarrier::Peer& UcxCarrier::peer(RankId rank) {
  const auto found = peers_.find(rank);
  KINTSUGI_ASSERT_MSG(found != peers_.end(), "a peer is a connected rank");
  return *found->second;
}

// --- the interface --------------------------------------------------------------------------------------------------

// False when the deadline passed first. Cancel counts as ready.
template <class Ready>
bool UcxCarrier::wait_until(std::unique_lock<std::mutex>& lock, Instant deadline, Ready ready) {
  const auto over = [&] { return cancelled_.has_value() || ready(); };
  if (deadline == kNoDeadline) {
    changed_.wait(lock, over);
    return true;
  }
  return changed_.wait_until(lock, std::chrono::steady_clock::time_point{std::chrono::nanoseconds(deadline.ns)}, over);
}

Result<SendTicket> UcxCarrier::send(RankId to, const MessageKey& key, std::span<const std::byte> bytes,
                                    Instant deadline) {
  Claim claim(*this);
  Peer& p = peer(to);
  const auto has_room = [&] { return p.lost || p.sent - p.acknowledged < config_.window; };
  const bool in_time = wait_until(claim.lock(), deadline, has_room);
  if (cancelled_) return *cancelled_;
  if (p.lost) return *p.lost;
  if (!in_time) return deadline_passed("waiting for room in the queue to", to, describe(key));
  ++p.sent;
  ++p.traffic.messages_sent;
  p.traffic.bytes_sent += bytes.size();
  const SendTicket ticket{to, p.sent};
  TensorHeader header;
  header.key = key;
  post(p, ticket.number, header, bytes);
  return ticket;
}

Result<void> UcxCarrier::wait_sent(SendTicket ticket, Instant deadline) {
  Claim claim(*this);
  Peer& p = peer(ticket.to);
  KINTSUGI_ASSERT(ticket.number > 0 && ticket.number <= p.sent);
  const bool in_time =
      wait_until(claim.lock(), deadline, [&] { return p.lost || !p.outgoing.contains(ticket.number); });
  if (cancelled_) return *cancelled_;
  if (p.lost) return *p.lost;
  if (!in_time) {
    return deadline_passed("waiting for the release by", ticket.to, "message " + std::to_string(ticket.number));
  }
  return {};
}

Result<Arrival> UcxCarrier::receive(RankId from, const MessageKey& key, std::size_t bytes, Instant deadline) {
  Claim claim(*this);
  Peer& p = peer(from);
  auto found = p.arrived.end();
  const auto is_known = [&] { return p.lost || (found = p.arrived.find(key)) != p.arrived.end(); };
  bool in_time = wait_until(claim.lock(), deadline, is_known);
  if (cancelled_) return *cancelled_;
  found = p.arrived.find(key);
  if (found != p.arrived.end()) {
    Message& m = *found->second;
    const std::size_t size = m.bytes;
    if (bytes == kAnySize ? size > kMaxSmallMessageBytes : size != bytes) return wrong_size(from, key, bytes, size);
    if (m.state == Message::State::offered && !p.lost) {
      std::erase(p.offers, &m);
      fetch(m, LandingPool::Demand::must);
      ucp_worker_signal(worker_);
    }
    in_time = wait_until(claim.lock(), deadline, [&] { return p.lost || m.state == Message::State::here; });
    if (cancelled_) return *cancelled_;
    if (m.state == Message::State::here) {
      const Arrival arrival{from, m.view(), m.handle};
      auto node = p.arrived.extract(key);
      p.being_read.emplace(arrival.handle, std::move(node.mapped()));
      return arrival;
    }
  }
  if (p.lost) return *p.lost;
  KINTSUGI_ASSERT(!in_time);
  return deadline_passed("waiting for", from, describe(key) + ", " + describe_size(bytes));
}

void UcxCarrier::release(const Arrival& arrival) {
  Claim claim(*this);
  Peer& p = peer(arrival.from);
  const auto found = p.being_read.find(arrival.handle);
  KINTSUGI_ASSERT_MSG(found != p.being_read.end(), "an arrival is released once");
  pool_.give_back(std::move(found->second->block));
  p.being_read.erase(found);
  ++p.released;
  if (p.lost || cancelled_) return;
  if (p.released - p.credits_told >= (config_.window + 3) / 4) post(p, kFirstCreditId | ++p.credit_messages, {}, {});
  if (!p.offers.empty()) ucp_worker_signal(worker_);
}

void UcxCarrier::cancel(const Error& why) {
  Claim claim(*this);
  fail(why);
}

std::map<RankId, PeerTraffic> UcxCarrier::traffic() const {
  Claim claim(*this);
  std::map<RankId, PeerTraffic> all;
  for (const auto& [rank, p] : peers_) all.emplace(rank, p->traffic);
  return all;
}

std::set<RankId> UcxCarrier::lost_peers() const {
  Claim claim(*this);
  std::set<RankId> lost;
  for (const auto& [rank, p] : peers_) {
    if (p->lost) lost.insert(rank);
  }
  return lost;
}

}  // namespace kintsugi::transport::ucx
