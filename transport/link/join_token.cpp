#include "transport/link/join_token.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace kintsugi::transport {

namespace {

constexpr std::string_view kPrefix = "kintsugi1.";
constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kTokenBytes = 64 + kChecksumBytes;
constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

// RFC 4648 section 5, without padding.
std::string base64url(std::span<const std::byte> bytes) {
  std::string out;
  std::uint32_t bits = 0;
  int bit_count = 0;
  for (const std::byte b : bytes) {
    bits = (bits << 8) | std::to_integer<std::uint32_t>(b);
    for (bit_count += 8; bit_count >= 6; bit_count -= 6) out += kAlphabet[(bits >> (bit_count - 6)) & 63];
  }
  if (bit_count > 0) out += kAlphabet[(bits << (6 - bit_count)) & 63];
  return out;
}

std::optional<std::vector<std::byte>> from_base64url(std::string_view text) {
  std::vector<std::byte> out;
  std::uint32_t bits = 0;
  int bit_count = 0;
  for (const char c : text) {
    const std::size_t digit = kAlphabet.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = (bits << 6) | static_cast<std::uint32_t>(digit);
    bit_count += 6;
    if (bit_count < 8) continue;
    bit_count -= 8;
    out.push_back(static_cast<std::byte>(bits >> bit_count));
  }
  // Bits past the last byte are zero in the one valid spelling.
  if ((bits & ((1u << bit_count) - 1)) != 0) return std::nullopt;
  return out;
}

Bytes32 checksum(std::span<const std::byte> token) {
  std::vector<std::byte> labelled(kPrefix.size());
  std::transform(kPrefix.begin(), kPrefix.end(), labelled.begin(), [](char c) { return static_cast<std::byte>(c); });
  labelled.insert(labelled.end(), token.begin(), token.end());
  return sha256(labelled);
}

Error bad_token(std::string why) {
  return {ErrorAction::tell_user, std::move(why) + "; copy it again from the output of `kintsugi supervise`"};
}

}  // namespace

std::string to_text(const JoinToken& token) {
  std::vector<std::byte> bytes(token.fingerprint.begin(), token.fingerprint.end());
  bytes.insert(bytes.end(), token.secret.begin(), token.secret.end());
  const Bytes32 sum = checksum(bytes);
  bytes.insert(bytes.end(), sum.begin(), sum.begin() + kChecksumBytes);
  return std::string(kPrefix) + base64url(bytes);
}

Result<JoinToken> parse_join_token(std::string_view text) {
  if (!text.starts_with("kintsugi")) return bad_token("this is no join token: one starts with `kintsugi1.`");
  if (!text.starts_with(kPrefix)) {
    return bad_token("the join token is of another version: this kintsugi reads `kintsugi1.`");
  }
  const std::optional<std::vector<std::byte>> bytes = from_base64url(text.substr(kPrefix.size()));
  if (!bytes) return bad_token("the join token is damaged: it holds a character that no token has");
  if (bytes->size() != kTokenBytes) {
    return bad_token("the join token is damaged: it has " + std::to_string(text.size()) + " characters instead of 101");
  }
  const std::span<const std::byte> body = std::span(*bytes).first(64);
  const Bytes32 sum = checksum(body);
  if (!std::equal(sum.begin(), sum.begin() + kChecksumBytes, bytes->begin() + 64)) {
    return bad_token("the join token is damaged: its checksum does not match, a character was mistyped");
  }
  JoinToken token;
  std::copy_n(body.begin(), 32, token.fingerprint.begin());
  std::copy_n(body.begin() + 32, 32, token.secret.begin());
  return token;
}

Bytes32 sha256(std::span<const std::byte> bytes) {
  Bytes32 out;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(out.data()));
  return out;
}

Bytes32 prove(const Bytes32& secret, std::string_view label, const Bytes32& binding) {
  std::string text(label);
  text.append(reinterpret_cast<const char*>(binding.data()), binding.size());
  Bytes32 out;
  unsigned int out_bytes = out.size();
  const unsigned char* done = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   reinterpret_cast<unsigned char*>(out.data()), &out_bytes);
  KINTSUGI_ASSERT(done != nullptr && out_bytes == out.size());
  return out;
}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace kintsugi::transport
