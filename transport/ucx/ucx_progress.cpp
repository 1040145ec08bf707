// The worker, its endpoints and the thread that drives them. UCX's functions are called under mutex_ only.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "base/thread_name.hpp"
#include "transport/describe.hpp"
#include "transport/ucx/ucx_carrier_state.hpp"

namespace kintsugi::transport::ucx {
namespace {

constexpr Duration kFlushTime = milliseconds(200);
constexpr Duration kProbeTime = milliseconds(1500);  // one lost SYN is sent again after a second
constexpr std::int64_t kSlowestBytesPerSecond = 50'000'000;

Error ucx_error(ErrorAction action, const char* doing, ucs_status_t status) {
  return {action, std::string("UCX cannot ") + doing + ": " + ucs_status_string(status)};
}

}  // namespace

void UcxCarrier::Callbacks::sent(void* request, ucs_status_t status, void* outgoing) {
  ucp_request_free(request);
  auto* o = static_cast<Outgoing*>(outgoing);
  o->carrier->finish(*o, status);
}

void UcxCarrier::Callbacks::fetched(void* request, ucs_status_t status, std::size_t, void* message) {
  ucp_request_free(request);
  auto* m = static_cast<Message*>(message);
  m->carrier->landed(*m, status);
}

ucs_status_t UcxCarrier::Callbacks::data(void* carrier, const void* header, std::size_t header_bytes, void* data,
                                         std::size_t bytes, const ucp_am_recv_param_t* parameters) {
  const auto decoded = decode(std::span(static_cast<const std::byte*>(header), header_bytes));
  auto* self = static_cast<UcxCarrier*>(carrier);
  const bool is_offer = (parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if (decoded && self->accept(*decoded, data, bytes, is_offer)) return UCS_INPROGRESS;
  return UCS_OK;
}

ucs_status_t UcxCarrier::Callbacks::credit(void* carrier, const void* header, std::size_t header_bytes, void*,
                                           std::size_t, const ucp_am_recv_param_t*) {
  const auto decoded = decode(std::span(static_cast<const std::byte*>(header), header_bytes));
  if (decoded) static_cast<UcxCarrier*>(carrier)->admit(*decoded);
  return UCS_OK;
}

void UcxCarrier::Callbacks::endpoint_failed(void* lost_peer, ucp_ep_h, ucs_status_t status) {
  auto* p = static_cast<Peer*>(lost_peer);
  p->carrier->lose(*p, ucs_status_string(status));
}

// --- life -----------------------------------------------------------------------------------------------------------

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
  address_ = context_->probes().addresses();
  address_.insert(address_.end(), first, first + length);
  ucp_worker_release_address(worker_, address);
  return {};
}

Result<void> UcxCarrier::connect(const std::map<RankId, std::vector<std::byte>>& addresses) {
  std::map<RankId, std::vector<sockaddr_storage>> doors;
  std::map<RankId, std::span<const std::byte>> workers;
  for (const auto& [rank, address] : addresses) {
    if (rank == config_.self) continue;
    std::span<const std::byte> rest = address;
    KINTSUGI_TRY_ASSIGN(doors[rank], take_probe_addresses(rest));
    workers[rank] = rest;
  }
  const std::set<RankId> silent = unreachable(doors, kProbeTime);
  Claim claim(*this);
  KINTSUGI_ASSERT_MSG(peers_.empty(), "connect is called once");
  for (const auto& [rank, address] : workers) {
    auto p = std::make_unique<Peer>();
    p->carrier = this;
    p->rank = rank;
    if (silent.contains(rank)) {
      lose(*p, "its machine does not answer on the data network");
      peers_.emplace(rank, std::move(p));
      continue;
    }
    ucp_ep_params_t parameters{};
    parameters.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
    parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    parameters.err_handler = {&Callbacks::endpoint_failed, p.get()};
    if (const auto s = ucp_ep_create(worker_, &parameters, &p->endpoint); s != UCS_OK) {
      return peer_gone(rank, ucs_status_string(s));
    }
    peers_.emplace(rank, std::move(p));
  }
  for (auto& [rank, p] : peers_) {
    if (!p->lost) post(*p, kFirstCreditId | ++p->credit_messages, {}, {});
  }
  last_round_ = clock_.now();
  // Not sooner: what peers sent already waits in the sockets until they are known here.
  progress_ = std::thread([this] {
    name_thread("ucx");
    run();
  });
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

// --- progress -------------------------------------------------------------------------------------------------------

void UcxCarrier::run() {
  std::unique_lock lock(mutex_);
  for (unsigned round = 1; !stopping_; ++round) {
    const bool worked = ucp_worker_progress(worker_) != 0;
    if (!worked || round % 64 == 0) keep_alive();
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
    ::poll(&event, 1, static_cast<int>(config_.pulse.ns / 1'000'000));
    lock.lock();
  }
}

// A pulse waits behind the bytes that its sender is asked for.
Duration UcxCarrier::silence_limit(const Peer& p) const {
  const auto bytes = static_cast<std::int64_t>(p.landing_bytes);
  return (p.greeted ? config_.silence : config_.first_word) + milliseconds(bytes / (kSlowestBytesPerSecond / 1000));
}

// What waited in the sockets was heard by now: progress came first.
void UcxCarrier::keep_alive() {
  const Instant now = clock_.now();
  if (now - last_round_ < Duration{config_.pulse.ns / 4}) return;
  const Duration awake = std::min(now - last_round_, config_.pulse * 2);
  last_round_ = now;
  if (cancelled_) return;
  for (auto& [rank, p] : peers_) {
    if (p->lost) continue;
    p->silence = p->silence + awake;
    if (p->silence > silence_limit(*p)) {
      lose(*p, fmt::format("nothing was heard from it for {:.1f} s", p->silence.seconds()));
    } else if (now - p->spoke >= config_.pulse) {
      post(*p, kFirstCreditId | ++p->credit_messages, {}, {});
    }
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
  m.peer->landing_bytes += m.bytes;
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  parameters.cb.recv_am = &Callbacks::fetched;
  parameters.user_data = &m;
  const auto request =
      ucp_am_recv_data_nbx(worker_, std::exchange(m.offer, nullptr), m.block.data, m.bytes, &parameters);
  if (request == nullptr)
    landed(m, UCS_OK);
  else if (UCS_PTR_IS_ERR(request))
    landed(m, UCS_PTR_STATUS(request));
}

void UcxCarrier::landed(Message& m, ucs_status_t status) {
  m.peer->landing_bytes -= m.bytes;
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

}  // namespace kintsugi::transport::ucx
