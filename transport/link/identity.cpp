#include "transport/link/identity.hpp"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/units.hpp"
#include "transport/link/private_file.hpp"

namespace kintsugi::transport {

namespace {

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;

constexpr long kNoExpiry_s = 100L * 365 * 24 * 3600;  // the token, not a date, says whom to trust

std::string text_of(const Bio& bio) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<std::size_t>(bytes));
}

Certificate self_signed(EVP_PKEY* key) {
  Certificate certificate(X509_new());
  KINTSUGI_ASSERT(certificate != nullptr);
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -24 * 3600);  // clocks of machines differ
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kNoExpiry_s);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME* name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("kintsugi"), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  KINTSUGI_ASSERT_MSG(X509_sign(certificate.get(), key, nullptr) != 0, "Ed25519 signs any certificate");
  return certificate;
}

Bytes32 fingerprint_of(const X509* certificate) {
  Bytes32 out;
  unsigned int bytes = out.size();
  const int ok = X509_digest(certificate, EVP_sha256(), reinterpret_cast<unsigned char*>(out.data()), &bytes);
  KINTSUGI_ASSERT(ok == 1 && bytes == out.size());
  return out;
}

std::string hex(const Bytes32& bytes) {
  std::string out;
  for (const std::byte b : bytes) {
    out += "0123456789abcdef"[std::to_integer<int>(b) >> 4];
    out += "0123456789abcdef"[std::to_integer<int>(b) & 15];
  }
  return out;
}

bool from_hex(const std::string& text, Bytes32& out) {
  const std::string digits = "0123456789abcdef";
  if (text.size() != 2 * out.size() || text.find_first_not_of(digits) != std::string::npos) return false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::byte>(digits.find(text[2 * i]) * 16 + digits.find(text[2 * i + 1]));
  }
  return true;
}

}  // namespace

Identity make_identity() {
  const Key key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  KINTSUGI_ASSERT_MSG(key != nullptr, "OpenSSL 3 makes Ed25519 keys");
  const Certificate certificate = self_signed(key.get());
  Identity identity;
  const Bio key_text(BIO_new(BIO_s_mem()));
  const Bio certificate_text(BIO_new(BIO_s_mem()));
  KINTSUGI_ASSERT(PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1);
  KINTSUGI_ASSERT(PEM_write_bio_X509(certificate_text.get(), certificate.get()) == 1);
  identity.key_pem = text_of(key_text);
  identity.certificate_pem = text_of(certificate_text);
  identity.token.fingerprint = fingerprint_of(certificate.get());
  const int drawn = RAND_bytes(reinterpret_cast<unsigned char*>(identity.token.secret.data()), 32);
  KINTSUGI_ASSERT_MSG(drawn == 1, "the operating system gives randomness");
  return identity;
}

std::string to_text(const Identity& identity) {
  const nlohmann::json json = {
      {"certificate", identity.certificate_pem}, {"key", identity.key_pem}, {"secret", hex(identity.token.secret)}};
  return json.dump(2) + "\n";
}

Result<Identity> parse_identity(const std::string& text) {
  const Error damaged{ErrorAction::tell_user,
                      "the supervisor's identity is damaged; remove it to make a new one, "
                      "which ends the validity of every join token given out"};
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return damaged;
  for (const char* key : {"certificate", "key", "secret"}) {
    if (!json.contains(key) || !json[key].is_string()) return damaged;
  }
  Identity identity{json["certificate"], json["key"], {}};
  const Bio certificate_text(
      BIO_new_mem_buf(identity.certificate_pem.data(), static_cast<int>(identity.certificate_pem.size())));
  const Bio key_text(BIO_new_mem_buf(identity.key_pem.data(), static_cast<int>(identity.key_pem.size())));
  const Certificate certificate(PEM_read_bio_X509(certificate_text.get(), nullptr, nullptr, nullptr));
  const Key key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr));
  if (!certificate || !key || X509_check_private_key(certificate.get(), key.get()) != 1) return damaged;
  if (!from_hex(json["secret"], identity.token.secret)) return damaged;
  identity.token.fingerprint = fingerprint_of(certificate.get());
  return identity;
}

Result<Identity> load_or_make_identity(const std::string& directory) {
  const std::string path = directory + "/identity.json";
  if (::access(path.c_str(), F_OK) != 0) {
    const Identity identity = make_identity();
    KINTSUGI_TRY(write_private_file(path, to_text(identity)));
    return identity;
  }
  KINTSUGI_TRY_ASSIGN(const std::string text, read_private_file(path, 64 * kKiB));
  Result<Identity> identity = parse_identity(text);
  if (!identity) return Error{identity.error().action, path + ": " + identity.error().message};
  return identity;
}

}  // namespace kintsugi::transport
