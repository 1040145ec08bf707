// A rank's communication as work on its compute stream, in the order in which the executor enqueues it.
//
// Sends lend device memory and never block the stream; each send's ticket is kept in an outbox, and whoever is about to
// overwrite the bytes drains the outbox first. Receives block the stream (and only it) until the message is here or the
// deadline of the step's budget has passed.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "kernels/ops.hpp"
#include "transport/collectives/all_gather_direct.hpp"
#include "transport/collectives/reduce_scatter_tree.hpp"
#include "transport/collectives/vote.hpp"

namespace kintsugi {

// Sends whose bytes are still lent. Touched only by work on the stream.
using Outbox = std::vector<transport::SendTicket>;

// Peers as they are, with the time spent waiting for them counted.
class TimedPeers final : public transport::PointToPoint {
 public:
  TimedPeers(transport::PointToPoint& peers, const Clock& clock) : peers_(peers), clock_(clock) {}

  // Runs `wait` and counts its time.
  template <class Wait>
  auto timed(Wait wait) {
    const Instant before = clock_.now();
    auto result = wait();
    waited_ns_ += (clock_.now() - before).ns;
    return result;
  }

  Result<transport::SendTicket> send(RankId to, const transport::MessageKey& key, std::span<const std::byte> bytes,
                                     Instant deadline) override {
    return timed([&] { return peers_.send(to, key, bytes, deadline); });
  }
  Result<void> wait_sent(transport::SendTicket ticket, Instant deadline) override {
    return timed([&] { return peers_.wait_sent(ticket, deadline); });
  }
  Result<transport::Arrival> receive(RankId from, const transport::MessageKey& key, std::size_t bytes,
                                     Instant deadline) override {
    return timed([&] { return peers_.receive(from, key, bytes, deadline); });
  }
  void release(const transport::Arrival& arrival) override { peers_.release(arrival); }
  void cancel(const Error& why) override { peers_.cancel(why); }
  std::map<RankId, transport::PeerTraffic> traffic() const override { return peers_.traffic(); }

  double wait_seconds() const { return static_cast<double>(waited_ns_.load()) * 1e-9; }  // any thread

 private:
  transport::PointToPoint& peers_;
  const Clock& clock_;
  std::atomic<std::int64_t> waited_ns_{0};
};

class Communicator {
 public:
  // `wait_limit`: the deadline of any one wait inside a step, derived from the job's budget.
  Communicator(kernels::Device& device, kernels::Stream& stream, transport::PointToPoint& peers, RankId self,
               const Clock& clock, Duration wait_limit);

  // --- enqueued -----------------------------------------------------------------------------------------------------
  void send(RankId to, const transport::MessageKey& key, kernels::View bytes, Outbox& outbox);
  void receive(RankId from, const transport::MessageKey& key, kernels::View into);
  void send_partial(const transport::collectives::Reduction& reduction, RankId primary,
                    const transport::collectives::PartialSum& sum, Outbox& outbox);
  void reduce(const transport::collectives::Reduction& reduction, transport::collectives::LaneAssignment assignment,
              std::vector<transport::collectives::PartialSum> own, kernels::View out);
  void publish(const transport::collectives::ShardVersion& which, kernels::View weights,
               std::vector<RankId> subscribers, Outbox& outbox);
  void collect(std::vector<transport::collectives::Subscription> wanted);
  // Waits until the peers have released all of `outbox`, and empties it.
  void drain(Outbox& outbox);

  // --- inside work that runs on the stream --------------------------------------------------------------------------
  Instant deadline() const { return clock_.now() + (patient_ ? kPatience : wait_limit_); }
  // Any thread. Whether waits that begin from now on have next to no deadline: nobody could act on their end.
  void set_patient(bool patient) { patient_ = patient; }
  TimedPeers& peers() { return peers_; }
  double wait_seconds() const { return peers_.wait_seconds(); }

 private:
  kernels::Device& device_;
  kernels::Stream& stream_;
  TimedPeers peers_;
  const transport::collectives::Party party_;
  const Clock& clock_;
  static constexpr Duration kPatience = seconds(366 * 24 * 3600);
  const Duration wait_limit_;
  std::atomic<bool> patient_{false};
};

}  // namespace kintsugi
