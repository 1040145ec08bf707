// Descriptors over a Unix stream (unix(7), SCM_RIGHTS). They arrive with the first byte of the write that carried them,
// and a read never spans past such a write; the frame decoder reads exact frames, so they stay with theirs.
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <boost/asio/local/stream_protocol.hpp>

#include "transport/link/carrier.hpp"
#include "transport/link/frame_codec.hpp"

namespace kintsugi::transport {

namespace {

constexpr std::size_t kControlBytes = CMSG_SPACE(kMaxFrameDescriptors * sizeof(int));
using Socket = asio::local::stream_protocol::socket;

ErrorCode error_now() {
  return {errno, boost::system::system_category()};
}
bool is_transient(const ErrorCode& e) {
  return e == boost::system::errc::resource_unavailable_try_again || e == boost::system::errc::interrupted;
}

// Returns the byte count, 0 at the end of the stream.
std::size_t receive(int fd, std::span<std::byte> into, std::vector<FileDescriptor>& descriptors, ErrorCode& error) {
  alignas(cmsghdr) char control[kControlBytes];
  iovec part{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t n = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) {
    error = error_now();
    return 0;
  }
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int received = -1;
      memcpy(&received, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(received);
    }
  }
  // More than fit, or this process is out of descriptors: some are lost, and so is the frame they belong to.
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    error = boost::system::errc::make_error_code(boost::system::errc::too_many_files_open);
  } else if (n == 0) {
    error = asio::error::eof;
  }
  return static_cast<std::size_t>(n);
}

std::size_t transmit(int fd, std::span<const std::byte> bytes, std::span<const FileDescriptor> descriptors,
                     ErrorCode& error) {
  alignas(cmsghdr) char control[kControlBytes] = {};
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    KINTSUGI_ASSERT(descriptors.size() <= kMaxFrameDescriptors);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    for (std::size_t i = 0; i < descriptors.size(); ++i) {
      const int sent = descriptors[i].get();
      memcpy(CMSG_DATA(c) + i * sizeof(int), &sent, sizeof(int));
    }
  }
  const ssize_t n = ::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0) error = error_now();
  return n < 0 ? 0 : static_cast<std::size_t>(n);
}

class UnixCarrier final : public Carrier {
 public:
  UnixCarrier(asio::io_context& context, FileDescriptor socket) : socket_(context) {
    ErrorCode error;
    socket_.assign({}, socket.release(), error);
    KINTSUGI_ASSERT_MSG(!error, "the io thread can watch a socket");
  }

  void read_some(std::span<std::byte> into, std::vector<FileDescriptor>& descriptors, Done done) override {
    socket_.async_wait(Socket::wait_read, [this, into, &descriptors, done = std::move(done)](ErrorCode error) mutable {
      std::size_t n = 0;
      if (!error) n = receive(socket_.native_handle(), into, descriptors, error);
      if (is_transient(error))
        read_some(into, descriptors, std::move(done));
      else
        done(error, n);
    });
  }

  void write_some(std::span<const std::byte> bytes, std::span<const FileDescriptor> descriptors, Done done) override {
    socket_.async_wait(Socket::wait_write, [this, bytes, descriptors, done = std::move(done)](ErrorCode error) mutable {
      std::size_t n = 0;
      if (!error) n = transmit(socket_.native_handle(), bytes, descriptors, error);
      if (is_transient(error))
        write_some(bytes, descriptors, std::move(done));
      else
        done(error, n);
    });
  }

  void finish_writing() override {
    ErrorCode ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }

  void close() override {
    ErrorCode ignored;
    socket_.shutdown(Socket::shutdown_both, ignored);
    socket_.close(ignored);
  }

  bool carries_descriptors() const override { return true; }

 private:
  Socket socket_;
};

}  // namespace

std::unique_ptr<Carrier> make_unix_carrier(asio::io_context& context, FileDescriptor socket) {
  return std::make_unique<UnixCarrier>(context, std::move(socket));
}

}  // namespace kintsugi::transport
