// C7: nothing a stranger does on the control port reaches anyone, or keeps others out.
#include <openssl/ssl.h>
#include <unistd.h>

#include <fstream>

#include "base/philox.hpp"
#include "tests/transport/link/link_harness.hpp"

namespace kintsugi::transport {
namespace {

using testing::HasSubstr;

// A TLS client that believes any certificate, as an attacker would.
class RawTls {
 public:
  explicit RawTls(std::uint16_t port) : socket_(raw_connection(port)), context_(SSL_CTX_new(TLS_client_method())) {
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, socket_.get());
    EXPECT_EQ(1, SSL_connect(ssl_));
  }
  ~RawTls() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  void write(std::span<const std::byte> bytes) { SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())); }
  std::string read_all() {
    std::string text;
    char bytes[512];
    int n = 0;
    while ((n = SSL_read(ssl_, bytes, sizeof(bytes))) > 0) text.append(bytes, static_cast<std::size_t>(n));
    return text;
  }

 private:
  FileDescriptor socket_;
  SSL_CTX* context_;
  SSL* ssl_;
};

TEST(Stranger, garbage_on_the_port_ends_that_connection_alone) {
  Supervisor supervisor;
  Inbox inbox;
  LinkService service{Logger()};
  const auto link = std::move(service.dial_and_wait(supervisor.dial_request(inbox))).value();
  const PhiloxKey key = philox_key(3);
  for (std::uint64_t round = 0; round < 50; ++round) {
    std::string noise(1 + philox_u64(key, round, 0) % 3000, '\0');
    for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>(philox_u64(key, round, i + 1));
    const FileDescriptor stranger = raw_connection(supervisor.address.port);
    ASSERT_GT(::send(stranger.get(), noise.data(), noise.size(), MSG_NOSIGNAL), 0);
    ::shutdown(stranger.get(), SHUT_WR);
    ASSERT_TRUE(closed_by_peer(stranger.get()));
  }
  ASSERT_TRUE(link->send(frame_of(1)).ok());
  EXPECT_TRUE(supervisor.inbox.wait_frames(1));
  EXPECT_EQ(supervisor.service.strangers().dropped, 50u);
}

TEST(Stranger, silence_ends_at_the_greeting_deadline) {
  Supervisor supervisor(calm(), milliseconds(100));
  const FileDescriptor stranger = raw_connection(supervisor.address.port);
  EXPECT_TRUE(closed_by_peer(stranger.get()));
  EXPECT_EQ(supervisor.service.strangers().dropped, 1u);
}

TEST(Stranger, a_tls_client_without_a_hello_ends_at_the_greeting_deadline) {
  Supervisor supervisor(calm(), milliseconds(200));
  RawTls stranger(supervisor.address.port);
  EXPECT_EQ(stranger.read_all(), "");
  EXPECT_EQ(supervisor.service.strangers().dropped, 1u);
}

TEST(Stranger, half_open_connections_by_the_hundred_keep_nobody_out) {
  Supervisor supervisor(calm(), seconds(60), 64);
  Inbox inbox, late_inbox;
  LinkService service{Logger()};
  const auto link = std::move(service.dial_and_wait(supervisor.dial_request(inbox))).value();
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(raw_connection(supervisor.address.port));
  const auto late = service.dial_and_wait(supervisor.dial_request(late_inbox));
  ASSERT_TRUE(late.ok()) << late.error().message;
  ASSERT_TRUE(link->send(frame_of(1)).ok());
  ASSERT_TRUE((*late)->send(frame_of(1)).ok());
  EXPECT_TRUE(supervisor.inbox.wait_frames(2));
  const StrangerCounts counts = supervisor.service.strangers();
  EXPECT_LE(counts.present, 64u);
  EXPECT_EQ(counts.accepted, 202u);
  EXPECT_EQ(counts.dropped + counts.present, 200u);
  EXPECT_TRUE(closed_by_peer(strangers.front().get()));
}

TEST(Stranger, frames_before_a_proof_reach_nobody) {
  Supervisor supervisor;
  const FrameHeaderBytes header = encode_frame_header({FrameKind::message, 0, 8});
  RawTls stranger(supervisor.address.port);
  stranger.write(header);
  stranger.write(header);
  EXPECT_EQ(stranger.read_all(), "");
  EXPECT_EQ(supervisor.inbox.frame_count(), 0u);
  EXPECT_EQ(supervisor.service.strangers().proven, 0u);
}

TEST(Stranger, a_hello_larger_than_any_hello_takes_no_memory) {
  Supervisor supervisor;
  RawTls stranger(supervisor.address.port);
  stranger.write(encode_frame_header({FrameKind::control, 0, 16 * kMiB}));
  EXPECT_THAT(stranger.read_all(), HasSubstr("the cap of this link is 4096"));
}

TEST(Stranger, another_frame_version_is_refused_by_name) {
  Supervisor supervisor;
  FrameHeaderBytes header = encode_frame_header({FrameKind::control, 0, 64});
  header[2] = std::byte{9};
  RawTls stranger(supervisor.address.port);
  stranger.write(header);
  EXPECT_THAT(stranger.read_all(), HasSubstr("speaks link version 9"));
}

TEST(Stranger, a_source_is_logged_once_and_counted_always) {
  const std::string path = testing::TempDir() + "kintsugi-stranger-" + std::to_string(::getpid()) + ".log";
  {
    Supervisor supervisor(calm(), seconds(2), 64, Logger::to_file(path, LogLevel::info, "test"));
    for (int i = 0; i < 5; ++i) {
      const FileDescriptor stranger = raw_connection(supervisor.address.port);
      ASSERT_EQ(5, ::send(stranger.get(), "GET /", 5, MSG_NOSIGNAL));
      ASSERT_TRUE(closed_by_peer(stranger.get()));
    }
    EXPECT_EQ(supervisor.service.strangers().dropped, 5u);
  }
  std::ifstream file(path);
  std::string line;
  std::size_t lines = 0;
  while (std::getline(file, line)) {
    ++lines;
    EXPECT_THAT(line, HasSubstr("127.0.0.1"));
  }
  EXPECT_EQ(lines, 1u);
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace kintsugi::transport
