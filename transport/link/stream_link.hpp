// The one Link there is: a queue, a decoder and a ping timer over a Carrier. Internal.
//
// The queue and the state are under a mutex, for senders on any thread; all else belongs to the io thread.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "transport/link/carrier.hpp"
#include "transport/link/link.hpp"

namespace kintsugi::transport {

class StreamLink final : public Link, public Stoppable {
 public:
  StreamLink(std::shared_ptr<IoThread> io, std::unique_ptr<Carrier> carrier, LinkPeer peer, LinkOptions options);

  // Once, on the io thread.
  void start(LinkCallbacks callbacks);
  void stop() override;

  Result<void> send(Frame frame, std::vector<FileDescriptor> descriptors) override;
  void pong(std::uint64_t id) override;
  void close(std::string why) override;
  const LinkPeer& peer() const override { return peer_; }
  bool is_up() const override;
  std::size_t queued_bytes() const override;

 private:
  enum class State { open, closing, down };

  struct Outgoing {
    FrameKind kind = FrameKind::message;
    Frame payload;
    std::vector<FileDescriptor> descriptors;
    std::size_t wire_bytes() const { return kFrameHeaderBytes + payload.asBytes().size(); }
  };
  // What is being written: small frames copied together, then at most one large payload in place.
  struct Batch {
    std::vector<std::byte> head;
    Frame large;
    std::vector<FileDescriptor> descriptors;
    std::size_t frame_count = 0;
    std::size_t wire_bytes = 0;
    std::size_t written = 0;
    std::span<const std::byte> rest() const;
  };
  struct SentPing {
    std::uint64_t id = 0;
    Instant at;
  };

  std::shared_ptr<StreamLink> self() { return std::static_pointer_cast<StreamLink>(shared_from_this()); }
  void enqueue_locked(Outgoing frame);
  void send_control(bool is_pong, std::uint64_t id);
  void write_next();
  bool take_batch();
  void on_written(const ErrorCode& error, std::size_t byte_count);
  void finish_batch();
  void read_next();
  void on_read(const ErrorCode& error, std::size_t byte_count);
  Result<void> deliver(DecodedFrame frame);
  Result<void> deliver_control(const DecodedFrame& frame);
  void on_pong(std::uint64_t id);
  Duration patience() const;
  void arm_pings();
  void on_ping_timer();
  void begin_linger(Error why);
  void go_down(Error why);
  Error lost(std::string what) const;

  const std::shared_ptr<IoThread> io_;
  const LinkPeer peer_;
  const LinkOptions options_;
  const SteadyClock clock_;

  mutable std::mutex mutex_;
  State state_ = State::open;
  Error why_;  // of closing and down
  std::deque<Outgoing> queue_;
  std::size_t queued_bytes_ = 0;   // with the batch being written
  std::size_t queued_frames_ = 0;  // likewise
  bool write_posted_ = false;      // a write is under way or will be
  bool send_refused_ = false;      // owes an on_drained

  std::unique_ptr<Carrier> carrier_;
  LinkCallbacks callbacks_;
  Batch batch_;
  FrameDecoder decoder_;
  std::vector<FileDescriptor> received_;  // of the frame being read
  asio::steady_timer ping_timer_;
  asio::steady_timer linger_timer_;
  std::deque<SentPing> unanswered_;
  std::uint64_t next_ping_ = 1;
  bool answered_ = false;           // a ping, ever
  std::uint64_t counted_from_ = 0;  // the first ping after that
  Duration slowest_;                // answer of late: an eighth less with each later one
  Instant next_ping_at_;
  Instant timer_due_;
};

}  // namespace kintsugi::transport
