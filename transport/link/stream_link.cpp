#include "transport/link/stream_link.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "schemas/codec.hpp"
#include "schemas/link.capnp.h"

namespace kintsugi::transport {

namespace {

// Frames up to here are copied into one write; a larger payload is written from where it lies.
constexpr std::size_t kCopiedPayloadBytes = 16 * kKiB;
constexpr std::size_t kBatchBytes = 64 * kKiB;

// How far silence may go beyond the slowest answer of late.
constexpr std::int64_t kTimesSlowest = 8;

std::span<const std::byte> bytes_of(const Frame& frame) {
  return std::as_bytes(std::span(frame.begin(), frame.size()));
}

}  // namespace

std::span<const std::byte> StreamLink::Batch::rest() const {
  if (written < head.size()) return std::span(head).subspan(written);
  return bytes_of(large).subspan(written - head.size());
}

StreamLink::StreamLink(std::shared_ptr<IoThread> io, std::unique_ptr<Carrier> carrier, LinkPeer peer,
                       LinkOptions options)
    : io_(std::move(io)),
      peer_(std::move(peer)),
      options_(options),
      carrier_(std::move(carrier)),
      decoder_(options.frame_cap_bytes),
      ping_timer_(io_->context),
      linger_timer_(io_->context) {
  KINTSUGI_ASSERT(options.ping_interval > Duration{} && options.ping_deadline >= options.ping_interval);
  KINTSUGI_ASSERT(options.frame_cap_bytes <= UINT32_MAX);
}

void StreamLink::start(LinkCallbacks callbacks) {
  callbacks_ = std::move(callbacks);
  if (io_->stopping) return go_down({ErrorAction::cancelled, "the link service stopped"});
  io_->live.insert(this);
  next_ping_at_ = clock_.now();
  arm_pings();
  read_next();
}

void StreamLink::stop() {
  begin_linger({ErrorAction::cancelled, "the link service stopped"});
}

Error StreamLink::lost(std::string what) const {
  return {ErrorAction::fail_link, "link to " + peer_.address + " is down: " + std::move(what)};
}

// ---- sending, from any thread

Result<void> StreamLink::send(Frame frame, std::vector<FileDescriptor> descriptors) {
  Outgoing out{FrameKind::message, std::move(frame), std::move(descriptors)};
  const std::size_t payload_bytes = out.payload.asBytes().size();
  if (payload_bytes == 0 || payload_bytes > options_.frame_cap_bytes) {
    return Error{ErrorAction::fail_link,
                 fmt::format("cannot send a frame of {} bytes to {}: the cap of this link is {}", payload_bytes,
                             peer_.address, options_.frame_cap_bytes)};
  }
  const std::scoped_lock lock(mutex_);
  if (state_ != State::open) return lost(why_.message);
  const bool carries = out.descriptors.empty() || carrier_->carries_descriptors();
  if (!carries || out.descriptors.size() > kMaxFrameDescriptors) {
    return Error{ErrorAction::fail_link,
                 fmt::format("cannot send {} file descriptors to {}: {}", out.descriptors.size(), peer_.address,
                             carries ? "the limit is 8" : "it is another machine")};
  }
  if (queued_frames_ >= options_.queue_cap_frames || queued_bytes_ + out.wire_bytes() > options_.queue_cap_bytes) {
    send_refused_ = true;
    return Error{ErrorAction::retry, fmt::format("the queue to {} is full: {} frames, {}; wait until it drains",
                                                 peer_.address, queued_frames_, format_bytes(queued_bytes_))};
  }
  enqueue_locked(std::move(out));
  return {};
}

void StreamLink::enqueue_locked(Outgoing frame) {
  queued_bytes_ += frame.wire_bytes();
  ++queued_frames_;
  queue_.push_back(std::move(frame));
  if (std::exchange(write_posted_, true)) return;
  asio::post(io_->context, [me = self()] { me->write_next(); });
}

void StreamLink::pong(std::uint64_t id) {
  send_control(true, id);
}

// Control frames pass a full queue; a peer that makes us queue without end by pinging and not reading is cut.
void StreamLink::send_control(bool is_pong, std::uint64_t id) {
  capnp::MallocMessageBuilder builder;
  auto control = builder.initRoot<schemas::LinkControl>();
  if (is_pong)
    control.setPong(id);
  else
    control.setPing(id);
  const std::scoped_lock lock(mutex_);
  if (state_ != State::open) return;
  if (queued_frames_ >= 2 * options_.queue_cap_frames) {
    asio::post(io_->context, [me = self()] { me->go_down(me->lost("it pings and does not read")); });
    return;
  }
  enqueue_locked({FrameKind::control, capnp::messageToFlatArray(builder), {}});
}

void StreamLink::close(std::string why) {
  const std::scoped_lock lock(mutex_);
  if (state_ != State::open) return;
  asio::post(io_->context, [me = self(), why = std::move(why)]() mutable {
    me->begin_linger({ErrorAction::cancelled, std::move(why)});
  });
}

bool StreamLink::is_up() const {
  const std::scoped_lock lock(mutex_);
  return state_ == State::open;
}

std::size_t StreamLink::queued_bytes() const {
  const std::scoped_lock lock(mutex_);
  return queued_bytes_;
}

// ---- writing, on the io thread

bool StreamLink::take_batch() {
  const std::scoped_lock lock(mutex_);
  KINTSUGI_ASSERT(write_posted_ && batch_.frame_count == 0);
  while (!queue_.empty() && batch_.head.size() < kBatchBytes && batch_.large == nullptr) {
    Outgoing& next = queue_.front();
    if (batch_.frame_count > 0 && !next.descriptors.empty()) break;  // descriptors go with a batch's first byte
    const std::span<const std::byte> payload = bytes_of(next.payload);
    const FrameHeaderBytes header = encode_frame_header(
        {next.kind, static_cast<std::uint8_t>(next.descriptors.size()), static_cast<std::uint32_t>(payload.size())});
    batch_.head.insert(batch_.head.end(), header.begin(), header.end());
    batch_.wire_bytes += next.wire_bytes();
    ++batch_.frame_count;
    if (!next.descriptors.empty()) batch_.descriptors = std::move(next.descriptors);
    if (payload.size() <= kCopiedPayloadBytes)
      batch_.head.insert(batch_.head.end(), payload.begin(), payload.end());
    else
      batch_.large = std::move(next.payload);
    queue_.pop_front();
  }
  if (batch_.frame_count == 0) write_posted_ = false;
  return batch_.frame_count > 0;
}

void StreamLink::write_next() {
  if (state_ == State::down) return;
  if (batch_.frame_count == 0 && !take_batch()) {
    if (state_ == State::closing) carrier_->finish_writing();
    return;
  }
  const std::span<const FileDescriptor> descriptors =
      batch_.written == 0 ? std::span<const FileDescriptor>(batch_.descriptors) : std::span<const FileDescriptor>();
  carrier_->write_some(batch_.rest(), descriptors, [me = self()](const ErrorCode& error, std::size_t byte_count) {
    me->on_written(error, byte_count);
  });
}

void StreamLink::on_written(const ErrorCode& error, std::size_t byte_count) {
  if (state_ == State::down) return;
  // The peer may have said why before it went: what it sent is still to be read, so the end comes from the reader, or
  // from the linger timer.
  if (error) return begin_linger(lost("cannot write: " + error.message()));
  batch_.written += byte_count;
  if (batch_.written == batch_.wire_bytes) finish_batch();
  write_next();
}

void StreamLink::finish_batch() {
  bool drained = false;
  {
    const std::scoped_lock lock(mutex_);
    queued_bytes_ -= batch_.wire_bytes;
    queued_frames_ -= batch_.frame_count;
    drained = send_refused_ && queued_bytes_ <= options_.queue_cap_bytes / 2 &&
              queued_frames_ <= options_.queue_cap_frames / 2;
    if (drained) send_refused_ = false;
  }
  batch_.head.clear();
  batch_ = Batch{std::move(batch_.head), nullptr, {}, 0, 0, 0};
  if (drained && callbacks_.on_drained) callbacks_.on_drained(*this);
}

// ---- reading

void StreamLink::read_next() {
  carrier_->read_some(decoder_.want(), received_, [me = self()](const ErrorCode& error, std::size_t byte_count) {
    me->on_read(error, byte_count);
  });
}

void StreamLink::on_read(const ErrorCode& error, std::size_t byte_count) {
  if (state_ == State::down) return;
  if (error) {
    if (state_ == State::closing && why_.action == ErrorAction::cancelled) return go_down(why_);
    const char* where = decoder_.between_frames() ? "" : " in the middle of a frame";
    return go_down(lost(fmt::format("the peer ended it{} ({})", where, error.message())));
  }
  Result<std::optional<DecodedFrame>> frame = decoder_.filled(byte_count);
  if (!frame) return go_down(lost(frame.error().message));
  if (frame->has_value()) {
    const Result<void> delivered = deliver(std::move(**frame));
    if (!delivered) return go_down(lost(delivered.error().message));
  }
  read_next();
}

Result<void> StreamLink::deliver(DecodedFrame frame) {
  std::vector<FileDescriptor> descriptors = std::exchange(received_, {});
  if (descriptors.size() != frame.header.descriptor_count) {
    return Error{ErrorAction::fail_link, fmt::format("a frame announced {} file descriptors and brought {}",
                                                     frame.header.descriptor_count, descriptors.size())};
  }
  if (frame.header.kind == FrameKind::control) return deliver_control(frame);
  if (callbacks_.on_frame) callbacks_.on_frame(*this, std::move(frame.payload), std::move(descriptors));
  return {};
}

Result<void> StreamLink::deliver_control(const DecodedFrame& frame) {
  return read_message<schemas::LinkControl>(
      frame.payload.asPtr(), "a control frame of a link", [&](schemas::LinkControl::Reader in) -> Result<void> {
        switch (in.which()) {
          case schemas::LinkControl::PING:
            if (callbacks_.on_ping)
              callbacks_.on_ping(*this, in.getPing());
            else
              pong(in.getPing());
            return {};
          case schemas::LinkControl::PONG: on_pong(in.getPong()); return {};
          case schemas::LinkControl::HELLO:
          case schemas::LinkControl::WELCOME:
          case schemas::LinkControl::REFUSED: break;
        }
        return Error{ErrorAction::fail_link, "a greeting, or an unknown control frame, on a link that is up"};
      });
}

// ---- pings

void StreamLink::on_pong(std::uint64_t id) {
  if (unanswered_.empty() || id < unanswered_.front().id || id >= next_ping_)
    return;  // answered before, or never asked
  // Those sent while it was starting say nothing of its answers.
  if (!std::exchange(answered_, true)) counted_from_ = next_ping_;
  Instant sent = unanswered_.front().at;
  while (!unanswered_.empty() && unanswered_.front().id <= id) {
    sent = unanswered_.front().at;
    unanswered_.pop_front();
  }
  const Duration taken = clock_.now() - sent;
  if (id >= counted_from_) slowest_ = std::max(taken, slowest_ - Duration{slowest_.ns / 8});
  if (callbacks_.on_pong) callbacks_.on_pong(*this, taken);
}

Duration StreamLink::patience() const {
  // What has lately been slow to answer, on a machine that has much else to do, may be so again: the silence that means an
  // end follows what was seen (after Hayashibara et al., "The phi accrual failure detector", 2004).
  const Duration seen = std::min(slowest_ * kTimesSlowest, options_.ping_deadline * kMostPatience);
  const Duration deadline = answered_ ? std::max(options_.ping_deadline, seen) : options_.first_answer;
  return peer_.hello.role == LinkRole::client ? std::max(deadline, options_.of_clients) : deadline;
}

void StreamLink::arm_pings() {
  timer_due_ = next_ping_at_;
  if (!unanswered_.empty()) timer_due_ = std::min(timer_due_, unanswered_.front().at + patience());
  ping_timer_.expires_after(to_chrono(std::max(timer_due_ - clock_.now(), Duration{})));
  ping_timer_.async_wait([me = self()](const ErrorCode& error) {
    if (!error) me->on_ping_timer();
  });
}

void StreamLink::on_ping_timer() {
  if (state_ == State::down) return;
  const Instant now = clock_.now();
  // A timer this late says that *this* process was stopped or starved: silence meanwhile proves nothing of the peer.
  if (now - timer_due_ >= options_.ping_interval) {
    for (SentPing& ping : unanswered_) ping.at = now;
  }
  if (!unanswered_.empty() && now - unanswered_.front().at >= patience()) {
    return go_down(lost(fmt::format("no answer to pings for {} ms", patience().ms())));
  }
  if (now >= next_ping_at_) {
    unanswered_.push_back({next_ping_, now});
    send_control(false, next_ping_++);
    next_ping_at_ = now + options_.ping_interval;
  }
  arm_pings();
}

// ---- the end

// The end comes from the reader, when the peer has read all and closed, or from the timer. Closing a TCP socket at once
// would answer the peer's next ping with a reset, and with it goes what TCP has yet to transmit.
void StreamLink::begin_linger(Error why) {
  bool idle = false;
  {
    const std::scoped_lock lock(mutex_);
    if (state_ != State::open) return;
    state_ = State::closing;
    why_ = std::move(why);
    idle = !write_posted_;
  }
  if (idle) carrier_->finish_writing();
  linger_timer_.expires_after(to_chrono(options_.linger));
  linger_timer_.async_wait([me = self()](const ErrorCode& error) {
    if (!error) me->go_down(me->why_);
  });
}

void StreamLink::go_down(Error why) {
  {
    const std::scoped_lock lock(mutex_);
    if (state_ == State::down) return;
    state_ = State::down;
    why_ = why;
    queue_.clear();
    queued_bytes_ = queued_frames_ = 0;
  }
  carrier_->close();
  ping_timer_.cancel();
  linger_timer_.cancel();
  io_->live.erase(this);
  received_.clear();
  LinkCallbacks callbacks = std::exchange(callbacks_, {});
  if (callbacks.on_down) callbacks.on_down(*this, why);
}

}  // namespace kintsugi::transport
