// What UcxCarrier keeps of its peers and messages: for its own two sources, ucx_carrier.cpp (messages) and
// ucx_progress.cpp (the worker and its thread).
#pragma once

#include <deque>

#include "transport/ucx/ucx_carrier.hpp"

namespace kintsugi::transport::ucx {

constexpr unsigned kDataMessage = 0;
constexpr unsigned kCreditMessage = 1;
constexpr std::uint64_t kFirstCreditId = std::uint64_t{1} << 63;  // ids below are the numbers of data messages

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
  LandingPool::Block block;      // large messages
  std::vector<std::byte> small;  // the others
  std::span<const std::byte> view() const { return {block.data != nullptr ? block.data : small.data(), bytes}; }
};

struct UcxCarrier::Peer {
  UcxCarrier* carrier = nullptr;
  RankId rank;
  ucp_ep_h endpoint = nullptr;
  std::optional<Error> lost;
  bool greeted = false;  // something was heard
  Duration silence;      // since then, or since connect
  Instant spoke;
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
  std::size_t landing_bytes = 0;                                 // being fetched
  std::deque<Message*> offers;                                   // to be fetched, oldest first
  PeerTraffic traffic;
};

// UCX calls these from ucp_worker_progress or from the posting call, in both cases under mutex_.
struct UcxCarrier::Callbacks {
  static void sent(void* request, ucs_status_t status, void* outgoing);
  static void fetched(void* request, ucs_status_t status, std::size_t bytes, void* message);
  static ucs_status_t data(void* carrier, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                           const ucp_am_recv_param_t* parameters);
  static ucs_status_t credit(void* carrier, const void* header, std::size_t header_bytes, void*, std::size_t,
                             const ucp_am_recv_param_t*);
  static void endpoint_failed(void* lost_peer, ucp_ep_h, ucs_status_t status);
};

// A caller's hold on mutex_, which the busy progress thread gives way to.
class UcxCarrier::Claim {
 public:
  explicit Claim(const UcxCarrier& carrier) : lock_(carrier.mutex_, std::defer_lock) {
    carrier.claims_.fetch_add(1);
    lock_.lock();
    carrier.claims_.fetch_sub(1);
  }
  std::unique_lock<std::mutex>& lock() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace kintsugi::transport::ucx
