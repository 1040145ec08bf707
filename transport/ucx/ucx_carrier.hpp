// The carrier between nodes: UCX active messages over tcp, one worker a rank and generation. A progress thread sleeps
// on the worker's event fd; callers sleep on a condition. Small messages arrive with their header; a large one is
// offered, and fetched into landing memory when there is room or when it is asked for.
//
// No transport notices a path that swallows everything. So whoever has nothing to say for a pulse says so, and a peer of
// which nothing is heard for `silence` is lost. Only time in which this side itself was awake counts.
//
// As in a node, a message holds one of the sender's `window` credits until its receiver releases it; credits come back
// with other messages or, by the quarter window, in messages of their own. So memory is bounded on both sides.
//
// After `cancel`, bytes lent to unfinished sends must stay mapped until this object goes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "transport/point_to_point.hpp"
#include "transport/ucx/landing_pool.hpp"
#include "transport/ucx/tensor_header.hpp"
#include "transport/ucx/ucx_context.hpp"

namespace kintsugi::transport::ucx {

// Thread safe.
class UcxCarrier final : public PointToPoint {
 public:
  struct Config {
    RankId self;
    Fence fence;
    std::uint64_t window = 512;              // unreleased messages a peer
    std::size_t landing_bytes = 256U << 20;  // for large messages that nobody has asked for yet
    Duration pulse = milliseconds(200);
    Duration silence = milliseconds(1600);     // as on the control plane
    Duration first_word = milliseconds(5000);  // likewise until a peer's first: it may still be making its memory
  };

  static Result<std::unique_ptr<UcxCarrier>> open(const Config& config, std::shared_ptr<UcxContext> context);
  // Hands what was sent to the network, at most 200 ms, unless cancelled; then closes.
  ~UcxCarrier() override;

  // This worker's address, for the plan.
  const std::vector<std::byte>& address() const { return address_; }
  // All peers of this generation, once, before the first send or receive. Greets each, so that its end is noticed; one
  // whose machine does not answer is lost already. Blocks for 1.5 s at most while a path is silent.
  Result<void> connect(const std::map<RankId, std::vector<std::byte>>& addresses);

  Result<SendTicket> send(RankId to, const MessageKey& key, std::span<const std::byte> bytes,
                          Instant deadline) override;
  Result<void> wait_sent(SendTicket ticket, Instant deadline) override;
  Result<Arrival> receive(RankId from, const MessageKey& key, std::size_t bytes, Instant deadline) override;
  void release(const Arrival& arrival) override;
  void cancel(const Error& why) override;
  std::map<RankId, PeerTraffic> traffic() const override;
  std::set<RankId> lost_peers() const override;

 private:
  struct Peer;
  struct Outgoing;
  struct Message;
  struct Callbacks;
  class Claim;

  UcxCarrier(const Config& config, std::shared_ptr<UcxContext> context);
  Result<void> start();
  void run();
  void keep_alive();
  Duration silence_limit(const Peer& peer) const;
  void close_endpoints();
  void fetch_offers();
  void fetch(Message& message, LandingPool::Demand demand);
  void drop_offers(Peer& peer);
  void post(Peer& peer, std::uint64_t id, TensorHeader header, std::span<const std::byte> bytes);
  void finish(Outgoing& sent, ucs_status_t status);
  void landed(Message& message, ucs_status_t status);
  // Takes a message in; true when `data` is to be kept (an offer).
  bool accept(const TensorHeader& header, void* data, std::size_t bytes, bool is_offer);
  Peer* admit(const TensorHeader& header);
  void lose(Peer& peer, const std::string& why);
  void fail(Error why);
  Peer& peer(RankId rank);
  template <class Ready>
  bool wait_until(std::unique_lock<std::mutex>& lock, Instant deadline, Ready ready);

  const Config config_;
  std::shared_ptr<UcxContext> context_;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;  // the worker's
  std::vector<std::byte> address_;

  mutable std::mutex mutex_;            // the worker and everything below
  mutable std::atomic<int> claims_{0};  // callers that want mutex_: the progress thread lets them in between two rounds
  std::condition_variable changed_;
  LandingPool pool_;
  std::map<RankId, std::unique_ptr<Peer>> peers_;
  std::uint64_t stale_from_strangers_ = 0;
  std::optional<Error> cancelled_;
  const SteadyClock clock_;
  Instant last_round_;  // of keep_alive
  bool stopping_ = false;
  std::thread progress_;
};

}  // namespace kintsugi::transport::ucx
