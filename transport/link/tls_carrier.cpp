#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "transport/link/carrier.hpp"

namespace kintsugi::transport {

struct TlsContext::State {
  asio::ssl::context context{asio::ssl::context::tls};
  bool listens = false;
};

namespace {

constexpr std::string_view kExporterLabel = "EXPORTER-kintsugi-link-1";

class AsioTlsCarrier final : public TlsCarrier {
 public:
  AsioTlsCarrier(asio::ip::tcp::socket socket, asio::ssl::context& context, bool listens)
      : stream_(std::move(socket), context), listens_(listens) {}

  void handshake(HandshakeDone done) override {
    stream_.async_handshake(listens_ ? asio::ssl::stream_base::server : asio::ssl::stream_base::client,
                            std::move(done));
  }

  void read_some(std::span<std::byte> into, std::vector<FileDescriptor>&, Done done) override {
    stream_.async_read_some(asio::buffer(into.data(), into.size()), std::move(done));
  }

  void write_some(std::span<const std::byte> bytes, std::span<const FileDescriptor> descriptors, Done done) override {
    KINTSUGI_ASSERT_MSG(descriptors.empty(), "descriptors do not travel between machines");
    stream_.async_write_some(asio::buffer(bytes.data(), bytes.size()), std::move(done));
  }

  void finish_writing() override {
    ErrorCode ignored;
    stream_.lowest_layer().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  }

  void close() override {
    ErrorCode ignored;
    stream_.lowest_layer().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    stream_.lowest_layer().close(ignored);
  }

  bool carries_descriptors() const override { return false; }

  Bytes32 channel_binding() override {
    Bytes32 out;
    const int ok = SSL_export_keying_material(stream_.native_handle(), reinterpret_cast<unsigned char*>(out.data()),
                                              out.size(), kExporterLabel.data(), kExporterLabel.size(), nullptr, 0, 0);
    KINTSUGI_ASSERT_MSG(ok == 1, "a finished TLS 1.3 handshake exports keying material");
    return out;
  }

  Bytes32 peer_fingerprint() override {
    Bytes32 out{};
    const std::unique_ptr<X509, void (*)(X509*)> certificate(SSL_get1_peer_certificate(stream_.native_handle()),
                                                             X509_free);
    unsigned int bytes = out.size();
    if (certificate) X509_digest(certificate.get(), EVP_sha256(), reinterpret_cast<unsigned char*>(out.data()), &bytes);
    return out;
  }

 private:
  asio::ssl::stream<asio::ip::tcp::socket> stream_;
  bool listens_;
};

void harden(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
}

}  // namespace

TlsContext::TlsContext() : state_(std::make_shared<State>()) {
  harden(state_->context.native_handle());
  state_->context.set_verify_mode(asio::ssl::verify_none);
}

TlsContext::TlsContext(const std::string& certificate_pem, const std::string& key_pem) : TlsContext() {
  ErrorCode certificate_error;
  ErrorCode key_error;
  state_->listens = true;
  state_->context.use_certificate(asio::buffer(certificate_pem), asio::ssl::context::pem, certificate_error);
  state_->context.use_private_key(asio::buffer(key_pem), asio::ssl::context::pem, key_error);
  KINTSUGI_ASSERT_MSG(!certificate_error && !key_error, "an Identity holds a certificate and its key");
}

TlsContext::~TlsContext() = default;

std::unique_ptr<TlsCarrier> TlsContext::wrap(asio::ip::tcp::socket socket) const {
  return std::make_unique<AsioTlsCarrier>(std::move(socket), state_->context, state_->listens);
}

}  // namespace kintsugi::transport
