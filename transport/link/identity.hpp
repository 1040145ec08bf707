// Who a supervisor is: an Ed25519 key with its self-signed certificate, and the secret that invites. Kept in the state
// directory, so that a restarted supervisor is the same one to nodes that hold its token.
#pragma once

#include <string>

#include "transport/link/join_token.hpp"

namespace kintsugi::transport {

struct Identity {
  std::string certificate_pem;
  std::string key_pem;
  JoinToken token;  // the fingerprint is the certificate's
};

// A fresh key and secret from the operating system's randomness.
Identity make_identity();
// DIRECTORY/identity.json, mode 0600; made if it is missing. Error{tell_user}: unreadable, damaged, open to others.
Result<Identity> load_or_make_identity(const std::string& directory);
// The text kept in that file: what is mirrored for `supervise --adopt` on another machine. As secret as the key.
std::string to_text(const Identity& identity);
Result<Identity> parse_identity(const std::string& text);

}  // namespace kintsugi::transport
