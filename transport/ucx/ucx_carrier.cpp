#include "transport/ucx/ucx_carrier.hpp"

#include <poll.h>

#include <array>
#include <chrono>
#include <cstring>
#include <deque>

#include "transport/describe.hpp"

namespace kintsugi::transport::ucx {
namespace {

constexpr unsigned kDataMessage = 0;
constexpr unsigned kCreditMessage = 1;
constexpr std::uint64_t kFirstCreditId = std::uint64_t{1} << 63;  // ids below are the numbers of data messages
constexpr Duration kFlushTime = milliseconds(200);

Error ucx_error(ErrorAction action, const char* doing, ucs_status_t status) {
  return {action, std::string("UCX cannot ") + doing + ": " + ucs_status_string(status)};
}

}  // namespace

// One message on its way out; header and bytes are UCX's to read until it is finished.
struct UcxCarrier::Outgoing {
  UcxCarrier* carrier;
  Peer* peer;
  std::uint64_t id;
  EncodedHeader header;
};

struct UcxCarrier::Message {
  enum class State : unsigned char { offered, landing, here };
  UcxCarrier* carrier;
  Peer* peer;
  std::uint64_t handle = 0;
  State state = State::here;
  void* offer = nullptr;  // UCX's descriptor, while offered
  std::size_t bytes = 0;
  LandingPool::Block block;           // large messages
  std::vector<std::byte> small;       // the others
  std::span<const std::byte> view() const { return {block.data != nullptr ? block.data : small.data(), bytes}; }
};

struct UcxCarrier::Peer {
  UcxCarrier* carrier = nullptr;
  RankId rank;
  ucp_ep_h endpoint = nullptr;
  std::optional<Error> lost;
  // Sending.
  std::uint64_t sent = 0;
  std::uint64_t acknowledged = 0;
  std::uint64_t credit_messages = 0;
  std::map<std::uint64_t, std::unique_ptr<Outgoing>> outgoing;
  // Receiving.
  std::uint64_t received = 0;
  std::uint64_t released = 0;
  std::uint64_t credits_told = 0;
  std::map<MessageKey, std::unique_ptr<Message>> arrived;        // not yet asked for
  std::map<std::uint64_t, std::unique_ptr<Message>> being_read;  // by handle
  std::deque<Message*> offers;                                   // to be fetched, oldest first
  PeerTraffic traffic;
};

// UCX calls these from ucp_worker_progress or from the posting call, in both cases under mutex_.
struct UcxCarrier::Callbacks {
  static void sent(void* request, ucs_status_t status, void* outgoing) {
    ucp_request_free(request);
    auto* o = static_cast<Outgoing*>(outgoing);
    o->carrier->finish(*o, status);
  }
  static void fetched(void* request, ucs_status_t status, std::size_t, void* message) {
    ucp_request_free(request);
    auto* m = static_cast<Message*>(message);
    m->carrier->landed(*m, status);
  }
  static ucs_status_t data(void* carrier, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                           const ucp_am_recv_param_t* parameters) {
    const auto decoded = decode(std::span(static_cast<const std::byte*>(header), header_bytes));
    auto* self = static_cast<UcxCarrier*>(carrier);
    const bool is_offer = (parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    if (decoded && self->accept(*decoded, data, bytes, is_offer)) return UCS_INPROGRESS;
    return UCS_OK;
  }
  static ucs_status_t credit(void* carrier, const void* header, std::size_t header_bytes, void*, std::size_t,
                             const ucp_am_recv_param_t*) {
    const auto decoded = decode(std::span(static_cast<const std::byte*>(header), header_bytes));
    if (decoded) static_cast<UcxCarrier*>(carrier)->admit(*decoded);
    return UCS_OK;
  }
  static void endpoint_failed(void* lost_peer, ucp_ep_h, ucs_status_t status) {
    auto* p = static_cast<Peer*>(lost_peer);
    p->carrier->lose(*p, ucs_status_string(status));
  }
};

// A caller's hold on mutex_, which the busy progress thread gives way to.
class UcxCarrier::Claim {
 public:
  explicit Claim(const UcxCarrier& carrier) : lock_(carrier.mutex_, std::defer_lock) {
    auto& claims = const_cast<std::atomic<int>&>(carrier.claims_);
    claims.fetch_add(1);
    lock_.lock();
    claims.fetch_sub(1);
  }
  std::unique_lock<std::mutex>& lock() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

// --- life --------------------------------------------------------------------------------------------------------------

UcxCarrier::UcxCarrier(const Config& config, std::shared_ptr<UcxContext> context)
    : config_(config), context_(std::move(context)), pool_(config.landing_bytes) {
  KINTSUGI_ASSERT(config_.window >= 1 && config_.window < kFirstCreditId);
}

Result<std::unique_ptr<UcxCarrier>> UcxCarrier::open(const Config& config, std::shared_ptr<UcxContext> context) {
  std::unique_ptr<UcxCarrier> carrier(new UcxCarrier(config, std::move(context)));
  KINTSUGI_TRY(carrier->start());
  return carrier;
}

Result<void> UcxCarrier::start() {
  ucp_worker_params_t parameters{};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (const auto s = ucp_worker_create(context_->get(), &parameters, &worker_); s != UCS_OK) {
    worker_ = nullptr;
    return ucx_error(ErrorAction::restart_process, "create a worker", s);
  }
  if (const auto s = ucp_worker_get_efd(worker_, &event_fd_); s != UCS_OK) {
    return ucx_error(ErrorAction::restart_process, "give an event descriptor", s);
  }
  for (const auto& [id, callback] : {std::pair{kDataMessage, &Callbacks::data}, {kCreditMessage, &Callbacks::credit}}) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = id;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = callback;
    handler.arg = this;
    if (const auto s = ucp_worker_set_am_recv_handler(worker_, &handler); s != UCS_OK) {
      return ucx_error(ErrorAction::restart_process, "set a handler", s);
    }
  }
  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  if (const auto s = ucp_worker_get_address(worker_, &address, &length); s != UCS_OK) {
    return ucx_error(ErrorAction::restart_process, "tell the worker's address", s);
  }
  const auto* first = reinterpret_cast<const std::byte*>(address);
  address_.assign(first, first + length);
  ucp_worker_release_address(worker_, address);
  return {};
}

Result<void> UcxCarrier::connect(const std::map<RankId, std::vector<std::byte>>& addresses) {
  Claim claim(*this);
  KINTSUGI_ASSERT_MSG(peers_.empty(), "connect is called once");
  for (const auto& [rank, address] : addresses) {
    if (rank == config_.self) continue;
    auto p = std::make_unique<Peer>();
    p->carrier = this;
    p->rank = rank;
    ucp_ep_params_t parameters{};
    parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                            UCP_EP_PARAM_FIELD_ERR_HANDLER;
    parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
    parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    parameters.err_handler = {&Callbacks::endpoint_failed, p.get()};
    if (const auto s = ucp_ep_create(worker_, &parameters, &p->endpoint); s != UCS_OK) {
      return peer_gone(rank, ucs_status_string(s));
    }
    peers_.emplace(rank, std::move(p));
  }
  for (auto& [rank, p] : peers_) post(*p, kFirstCreditId | ++p->credit_messages, {}, {});
  // Not sooner: what peers sent already waits in the sockets until they are known here.
  progress_ = std::thread([this] { run(); });
  return {};
}

UcxCarrier::~UcxCarrier() {
  if (progress_.joinable()) {
    {
      Claim claim(*this);
      stopping_ = true;
      ucp_worker_signal(worker_);
    }
    progress_.join();
  }
  if (worker_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  for (auto& [rank, p] : peers_) drop_offers(*p);
  close_endpoints();
  ucp_worker_destroy(worker_);
}

void UcxCarrier::close_endpoints() {
  std::vector<ucs_status_ptr_t> closing;
  for (auto& [rank, p] : peers_) {
    if (p->endpoint == nullptr) continue;
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = cancelled_ || p->lost ? UCP_EP_CLOSE_FLAG_FORCE : 0;
    const auto request = ucp_ep_close_nbx(p->endpoint, &parameters);
    if (request != nullptr && !UCS_PTR_IS_ERR(request)) closing.push_back(request);
  }
  const SteadyClock clock;
  const Instant until = clock.now() + kFlushTime;
  for (const auto request : closing) {
    while (ucp_request_check_status(request) == UCS_INPROGRESS && clock.now() < until) {
      if (ucp_worker_progress(worker_) != 0) continue;
      pollfd event{event_fd_, POLLIN, 0};
      if (ucp_worker_arm(worker_) == UCS_OK) ::poll(&event, 1, 1);
    }
    ucp_request_free(request);
  }
}

// --- progress ----------------------------------------------------------------------------------------------------------

void UcxCarrier::run() {
  std::unique_lock lock(mutex_);
  for (unsigned round = 1; !stopping_; ++round) {
    const bool worked = ucp_worker_progress(worker_) != 0;
    if (claims_.load() != 0 || round % 8 == 0) {  // now and then also for those that a notification woke
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
      continue;
    }
    if (worked) continue;
    fetch_offers();
    const ucs_status_t armed = ucp_worker_arm(worker_);
    if (armed == UCS_ERR_BUSY) continue;
    KINTSUGI_ASSERT_MSG(armed == UCS_OK, "a UCX worker can be armed");
    lock.unlock();
    pollfd event{event_fd_, POLLIN, 0};
    ::poll(&event, 1, -1);
    lock.lock();
  }
}

void UcxCarrier::fetch_offers() {
  for (auto& [rank, p] : peers_) {
    if (p->lost || cancelled_) {
      drop_offers(*p);
      continue;
    }
    while (!p->offers.empty()) {
      Message& m = *p->offers.front();
      if (m.state == Message::State::offered) fetch(m, LandingPool::Demand::within_budget);
      if (m.state == Message::State::offered) break;
      p->offers.pop_front();
    }
  }
}

void UcxCarrier::fetch(Message& m, LandingPool::Demand demand) {
  m.block = pool_.take(m.bytes, demand);
  if (m.block.data == nullptr) return;
  m.state = Message::State::landing;
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  parameters.cb.recv_am = &Callbacks::fetched;
  parameters.user_data = &m;
  const auto request = ucp_am_recv_data_nbx(worker_, std::exchange(m.offer, nullptr), m.block.data, m.bytes, &parameters);
  if (request == nullptr) landed(m, UCS_OK);
  else if (UCS_PTR_IS_ERR(request)) landed(m, UCS_PTR_STATUS(request));
}

void UcxCarrier::landed(Message& m, ucs_status_t status) {
  if (status != UCS_OK) return lose(*m.peer, ucs_status_string(status));
  m.state = Message::State::here;
  changed_.notify_all();
}

void UcxCarrier::drop_offers(Peer& p) {
  for (Message* m : p.offers) {
    if (m->state == Message::State::offered && m->offer != nullptr) {
      ucp_am_data_release(worker_, std::exchange(m->offer, nullptr));
    }
  }
  p.offers.clear();
}

// --- messages in -------------------------------------------------------------------------------------------------------

// The peer a message is from, its credits taken; nothing when it belongs to another generation or is malformed.
UcxCarrier::Peer* UcxCarrier::admit(const TensorHeader& header) {
  const auto found = peers_.find(header.from);
  if (header.fence != config_.fence || found == peers_.end()) {
    if (found != peers_.end()) ++found->second->traffic.stale_dropped;
    else ++stale_from_strangers_;
    return nullptr;
  }
  Peer& p = *found->second;
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

// --- messages out ------------------------------------------------------------------------------------------------------

void UcxCarrier::post(Peer& p, std::uint64_t id, TensorHeader header, std::span<const std::byte> bytes) {
  header.fence = config_.fence;
  header.from = config_.self;
  header.bytes = bytes.size();
  header.released = p.credits_told = p.released;
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
  if (request == nullptr) finish(o, UCS_OK);
  else if (UCS_PTR_IS_ERR(request)) finish(o, UCS_PTR_STATUS(request));
  else ucp_worker_signal(worker_);  // the rest is the progress thread's
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

// --- the interface -----------------------------------------------------------------------------------------------------

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
  const bool in_time = wait_until(claim.lock(), deadline, [&] { return p.lost || !p.outgoing.contains(ticket.number); });
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

}  // namespace kintsugi::transport::ucx
