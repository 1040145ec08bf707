// The cluster's credentials as text: kintsugi1.<base64url(certificate fingerprint | secret | checksum)>.
//
// The fingerprint names the one supervisor the dialer may talk to; the secret, proven by HMAC over the TLS exporter
// (RFC 9266: the proof of one connection is worthless on any other), shows that the dialer was invited. The checksum
// turns a typing error into a message about typing, not about strangers.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace kintsugi::transport {

using Bytes32 = std::array<std::byte, 32>;

struct JoinToken {
  Bytes32 fingerprint{};  // SHA-256 of the certificate's DER form
  Bytes32 secret{};
  bool operator==(const JoinToken&) const = default;
};

std::string to_text(const JoinToken& token);
// Error{tell_user}: no token, a damaged one, or one of another version.
Result<JoinToken> parse_join_token(std::string_view text);

Bytes32 sha256(std::span<const std::byte> bytes);
// HMAC-SHA-256 with `secret` over label, then binding.
Bytes32 prove(const Bytes32& secret, std::string_view label, const Bytes32& binding);
// In constant time.
bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace kintsugi::transport
