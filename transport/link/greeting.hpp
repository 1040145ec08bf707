// The hello exchange as pure functions: one frame each way, after the TLS handshake and before anything else.
//
// The dialer has checked the certificate's fingerprint, so it speaks first: hello with its proof. The listener answers
// welcome with its own proof, or refused with a reason. `binding` is the TLS exporter of this very connection.
#pragma once

#include <string>
#include <string_view>

#include "base/ids.hpp"
#include "transport/link/frame_codec.hpp"
#include "transport/link/join_token.hpp"

namespace kintsugi::transport {

enum class LinkRole : unsigned char { node, client };

struct Hello {
  LinkRole role = LinkRole::node;
  Incarnation incarnation;
  std::string name;  // for people: a host name
};

constexpr std::size_t kGreetingCapBytes = 4096;
constexpr std::size_t kMaxNameBytes = 255;

Frame encode_hello(const Hello& hello, const Bytes32& secret, const Bytes32& binding);
// Error{refuse}: the reason, to be told to the dialer. Error{fail_link}: no hello at all, nothing is told.
Result<Hello> check_hello(const DecodedFrame& frame, const Bytes32& secret, const Bytes32& binding);

Frame encode_welcome(Incarnation incarnation, const Bytes32& secret, const Bytes32& binding);
Frame encode_refused(std::string_view reason);
// The listener's incarnation. Error{refuse} for a person; `peer` is HOST:PORT.
Result<Incarnation> check_answer(const DecodedFrame& frame, const Bytes32& secret, const Bytes32& binding,
                                 const std::string& peer);

}  // namespace kintsugi::transport
