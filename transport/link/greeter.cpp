#include "transport/link/greeter.hpp"

#include <fmt/format.h>

namespace kintsugi::transport {

namespace {

class GreeterBase : public Greeter {
 public:
  GreeterBase(asio::io_context& context, std::unique_ptr<TlsCarrier> carrier, const JoinToken& token, Done done)
      : token_(token), carrier_(std::move(carrier)), done_(std::move(done)), timer_(context) {}

  void start(Duration deadline) {
    timer_.expires_after(to_chrono(deadline));
    timer_.async_wait([me = shared_from_this(), this, deadline](const ErrorCode& error) {
      if (!error) abort({ErrorAction::fail_link, fmt::format("no greeting within {} ms", deadline.ms())});
    });
    carrier_->handshake([me = shared_from_this(), this](const ErrorCode& error) {
      if (!done_) return;
      if (error) return abort({ErrorAction::fail_link, "TLS handshake failed: " + error.message()});
      binding_ = carrier_->channel_binding();
      after_handshake();
    });
  }

  void abort(Error why) override {
    if (!done_) return;
    const std::shared_ptr<Greeter> keep = shared_from_this();
    end(std::move(why));  // counted and logged before the stranger can see its end
    carrier_->close();
  }

 protected:
  virtual void after_handshake() = 0;
  virtual void on_frame(const DecodedFrame& frame) = 0;
  virtual void on_bad_frame(const Error& why) = 0;

  void read() {
    carrier_->read_some(decoder_.want(), no_descriptors_,
                        [me = shared_from_this(), this](const ErrorCode& error, std::size_t n) {
                          if (!done_) return;
                          if (error)
                            return abort({ErrorAction::fail_link, "ended before its greeting: " + error.message()});
                          Result<std::optional<DecodedFrame>> frame = decoder_.filled(n);
                          if (!frame) return on_bad_frame(frame.error());
                          if (!frame->has_value()) return read();
                          if ((*frame)->header.descriptor_count != 0)
                            return abort({ErrorAction::fail_link, "descriptors in a greeting"});
                          on_frame(**frame);
                        });
  }

  void write(const Frame& frame, std::function<void()> then) {
    const FrameHeaderBytes header =
        encode_frame_header({FrameKind::control, 0, static_cast<std::uint32_t>(frame.asBytes().size())});
    const std::span<const std::byte> payload = std::as_bytes(std::span(frame.begin(), frame.size()));
    out_.assign(header.begin(), header.end());
    out_.insert(out_.end(), payload.begin(), payload.end());
    write_from(0, std::move(then));
  }

  void succeed(Hello peer) { end(Proven{std::move(carrier_), std::move(peer)}); }

  const JoinToken token_;
  Bytes32 binding_{};
  std::unique_ptr<TlsCarrier> carrier_;

 private:
  void write_from(std::size_t offset, std::function<void()> then) {
    carrier_->write_some(
        std::span(out_).subspan(offset), {},
        [me = shared_from_this(), this, offset, then = std::move(then)](const ErrorCode& error, std::size_t n) {
          if (!done_) return;
          if (error) return abort({ErrorAction::fail_link, "ended before its greeting: " + error.message()});
          if (offset + n < out_.size()) return write_from(offset + n, then);
          then();
        });
  }

  void end(Result<Proven> result) {
    if (!done_) return;
    timer_.cancel();
    const Done done = std::exchange(done_, nullptr);
    done(std::move(result));
  }

  Done done_;
  asio::steady_timer timer_;
  FrameDecoder decoder_{kGreetingCapBytes};
  std::vector<FileDescriptor> no_descriptors_;
  std::vector<std::byte> out_;
};

class DialerGreeter final : public GreeterBase {
 public:
  DialerGreeter(asio::io_context& context, std::unique_ptr<TlsCarrier> carrier, const JoinToken& token,
                Incarnation incarnation, std::function<void()> before_welcome, Done done)
      : GreeterBase(context, std::move(carrier), token, std::move(done)),
        incarnation_(incarnation),
        before_welcome_(std::move(before_welcome)) {}

 private:
  void after_handshake() override { read(); }

  void on_frame(const DecodedFrame& frame) override {
    Result<Hello> hello = check_hello(frame, token_.secret, binding_);
    if (hello) {
      if (before_welcome_) before_welcome_();
      return write(encode_welcome(incarnation_, token_.secret, binding_), [this, h = *hello] { succeed(h); });
    }
    if (hello.error().action != ErrorAction::refuse) return abort(hello.error());
    on_bad_frame(hello.error());
  }

  // Told, so that a dialer of another release can say which.
  void on_bad_frame(const Error& why) override {
    write(encode_refused(why.message), [this, why] { abort(why); });
  }

  const Incarnation incarnation_;
  const std::function<void()> before_welcome_;
};

class ListenerGreeter final : public GreeterBase {
 public:
  ListenerGreeter(asio::io_context& context, std::unique_ptr<TlsCarrier> carrier, const JoinToken& token,
                  const Hello& hello, const std::string& peer, Done done)
      : GreeterBase(context, std::move(carrier), token, std::move(done)), hello_(hello), peer_(peer) {}

 private:
  void after_handshake() override {
    if (!same_bytes(carrier_->peer_fingerprint(), token_.fingerprint)) {
      return abort({ErrorAction::refuse, "the supervisor at " + peer_ +
                                             " is not the one the join token names: its "
                                             "certificate is another; get a new one from `kintsugi supervise`"});
    }
    write(encode_hello(hello_, token_.secret, binding_), [this] { read(); });
  }

  void on_frame(const DecodedFrame& frame) override {
    const Result<Incarnation> answer = check_answer(frame, token_.secret, binding_, peer_);
    if (!answer) return abort(answer.error());
    succeed(Hello{LinkRole::node, *answer, "supervisor"});
  }

  void on_bad_frame(const Error& why) override {
    abort({ErrorAction::refuse, "cannot talk to the supervisor at " + peer_ + ": " + why.message});
  }

  const Hello hello_;
  const std::string peer_;
};

}  // namespace

std::shared_ptr<Greeter> greet_dialer(asio::io_context& context, std::unique_ptr<TlsCarrier> carrier,
                                      const JoinToken& token, Incarnation incarnation,
                                      std::function<void()> before_welcome, Duration deadline, Greeter::Done done) {
  auto greeter = std::make_shared<DialerGreeter>(context, std::move(carrier), token, incarnation,
                                                 std::move(before_welcome), std::move(done));
  greeter->start(deadline);
  return greeter;
}

std::shared_ptr<Greeter> greet_listener(asio::io_context& context, std::unique_ptr<TlsCarrier> carrier,
                                        const JoinToken& token, const Hello& hello, const std::string& peer,
                                        Duration deadline, Greeter::Done done) {
  auto greeter = std::make_shared<ListenerGreeter>(context, std::move(carrier), token, hello, peer, std::move(done));
  greeter->start(deadline);
  return greeter;
}

}  // namespace kintsugi::transport
