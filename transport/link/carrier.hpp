// What carries a link's bytes: TLS over TCP, or a Unix socket with descriptors. Internal. All calls on the io thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/result.hpp"
#include "transport/link/asio.hpp"
#include "transport/link/join_token.hpp"

namespace kintsugi::transport {

class Carrier {
 public:
  // Called once, never inside the call that takes it. The caller's buffers live until then.
  using Done = std::function<void(const ErrorCode&, std::size_t byte_count)>;

  virtual ~Carrier() = default;
  // Descriptors that came along are appended.
  virtual void read_some(std::span<std::byte> into, std::vector<FileDescriptor>& descriptors, Done done) = 0;
  // Descriptors go with the first byte.
  virtual void write_some(std::span<const std::byte> bytes, std::span<const FileDescriptor> descriptors, Done done) = 0;
  // The peer reads what was written, then the end. Reading goes on.
  virtual void finish_writing() = 0;
  // Operations under way end with an error. Over TCP, what the peer has not read yet may be lost.
  virtual void close() = 0;
  virtual bool carries_descriptors() const = 0;
};

class TlsCarrier : public Carrier {
 public:
  using HandshakeDone = std::function<void(const ErrorCode&)>;
  virtual void handshake(HandshakeDone done) = 0;
  // After the handshake.
  virtual Bytes32 channel_binding() = 0;
  virtual Bytes32 peer_fingerprint() = 0;
};

// TLS 1.3 and nothing older, no tickets. The client's context trusts nobody: the dialer compares the fingerprint.
class TlsContext {
 public:
  TlsContext();  // of a dialer
  // Of a listener; asserts that `certificate_pem` and `key_pem` belong together.
  TlsContext(const std::string& certificate_pem, const std::string& key_pem);
  ~TlsContext();

  std::unique_ptr<TlsCarrier> wrap(asio::ip::tcp::socket socket) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

std::unique_ptr<Carrier> make_unix_carrier(asio::io_context& context, FileDescriptor socket);

}  // namespace kintsugi::transport
