// What every collective needs: the links, the device and the stream whose work it is.
//
// Collectives are called from work that runs on `stream` (Stream::enqueue), where they may block; what they enqueue
// there runs at once, in place. Errors are those of the links: Error{end_generation}, or the reason of a cancel.
#pragma once

#include <span>
#include <vector>

#include "kernels/device.hpp"
#include "kernels/ops.hpp"
#include "transport/point_to_point.hpp"

namespace kintsugi::transport::collectives {

struct Party {
  PointToPoint& links;
  kernels::Device& device;
  kernels::Stream& stream;
  RankId self;
};

// The bytes of `view` as the links may read them; valid inside the stream's work only.
std::span<const std::byte> lendable(const Party& party, const kernels::View& view);

// Until all bytes lent under `tickets` may be overwritten.
Result<void> wait_all_sent(PointToPoint& links, std::span<const SendTicket> tickets, Instant deadline);

// An arrival that is released on every way out.
class HeldArrival {
 public:
  HeldArrival(PointToPoint& links, const Arrival& arrival) : links_(&links), arrival_(arrival) {}
  ~HeldArrival() {
    if (links_ != nullptr) links_->release(arrival_);
  }
  HeldArrival(HeldArrival&& other) noexcept : links_(std::exchange(other.links_, nullptr)), arrival_(other.arrival_) {}
  HeldArrival& operator=(HeldArrival&&) = delete;

  std::span<const std::byte> bytes() const { return arrival_.bytes; }

 private:
  PointToPoint* links_;
  Arrival arrival_;
};

}  // namespace kintsugi::transport::collectives
