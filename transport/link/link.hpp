// A link: the control plane between two processes. Frames in order, each with up to eight file descriptors where both
// ends share a machine; bounded queues; pings that the *owner* answers, so that a stuck owner is noticed and a busy
// network thread does not speak for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/file.hpp"
#include "base/result.hpp"
#include "transport/link/frame_codec.hpp"
#include "transport/link/greeting.hpp"

namespace kintsugi::transport {

// A peer whose answers came slowly of late may be silent for longer than its deadline, up to so many times as long.
constexpr std::int64_t kMostPatience = 6;

struct LinkOptions {
  // Both are shares of the caller's one detection budget: a silent peer is down after `ping_deadline`.
  LinkOptions(Duration ping_interval_, Duration ping_deadline_)
      : ping_interval(ping_interval_), ping_deadline(ping_deadline_), first_answer(ping_deadline_) {}

  Duration ping_interval;
  Duration ping_deadline;
  Duration of_clients =
      seconds(60);        // instead, for a client: a person's terminal may be stopped, and it holds nobody up
  Duration first_answer;  // instead, until the peer has answered once: it may be a process that has yet to start
  Duration linger = milliseconds(200);  // close() waits so long for the peer to read what is queued
  std::size_t frame_cap_bytes = kDefaultFrameCapBytes;
  std::size_t queue_cap_bytes = 64 * kMiB;  // frames accepted by send() and not yet written
  std::size_t queue_cap_frames = 4096;
};

struct LinkPeer {
  std::string address;  // HOST:PORT, or the name given to adopt_unix
  Hello hello;          // of a dialer: what it said; of a listener: its incarnation
};

class Link;

// Called on the io thread of the LinkService, one at a time; must not block. Dropped after on_down, so that a callback
// may own the link. Empty ones are skipped; an empty on_ping answers at once.
struct LinkCallbacks {
  std::function<void(Link&, Frame, std::vector<FileDescriptor>)> on_frame;
  std::function<void(Link&, std::uint64_t id)> on_ping;     // the owner calls pong(id) when it gets to it
  std::function<void(Link&, Duration round_trip)> on_pong;  // for failure detectors
  std::function<void(Link&)> on_drained;                    // once after a refused send, when half is free
  std::function<void(Link&, const Error& why)> on_down;     // exactly once, the last; cancelled: close() or stop()
};

// Thread safe.
class Link : public std::enable_shared_from_this<Link> {
 public:
  virtual ~Link() = default;

  // Takes the frame, to be written after those before it. Error{retry}: the queue is full, the frame was not taken;
  // wait for on_drained, or close. Error{fail_link}: the link is down, or the frame breaks its caps. Never blocks.
  virtual Result<void> send(Frame frame, std::vector<FileDescriptor> descriptors = {}) = 0;
  virtual void pong(std::uint64_t id) = 0;
  // Frames already taken still leave; on_down(cancelled: why) when the peer has read them and closed, or after
  // `linger`.
  virtual void close(std::string why) = 0;

  virtual const LinkPeer& peer() const = 0;
  virtual bool is_up() const = 0;
  virtual std::size_t queued_bytes() const = 0;
};

}  // namespace kintsugi::transport
