#include "transport/link/greeting.hpp"

#include "schemas/codec.hpp"
#include "schemas/link.capnp.h"

namespace kintsugi::transport {

namespace {

constexpr std::string_view kDialerLabel = "kintsugi link 1 dialer";
constexpr std::string_view kListenerLabel = "kintsugi link 1 listener";

capnp::Data::Reader as_data(const Bytes32& bytes) {
  return capnp::Data::Reader(reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size());
}

bool proves(capnp::Data::Reader proof, const Bytes32& expected) {
  return same_bytes(std::as_bytes(std::span(proof.begin(), proof.size())), expected);
}

}  // namespace

Frame encode_hello(const Hello& hello, const Bytes32& secret, const Bytes32& binding) {
  capnp::MallocMessageBuilder builder;
  auto out = builder.initRoot<schemas::LinkControl>().initHello();
  out.setVersion(kLinkVersion);
  out.setRole(hello.role == LinkRole::node ? schemas::LinkRole::NODE : schemas::LinkRole::CLIENT);
  out.setIncarnation(hello.incarnation.value);
  out.setName(hello.name.substr(0, kMaxNameBytes));
  out.setProof(as_data(prove(secret, kDialerLabel, binding)));
  return capnp::messageToFlatArray(builder);
}

Result<Hello> check_hello(const DecodedFrame& frame, const Bytes32& secret, const Bytes32& binding) {
  if (frame.header.kind != FrameKind::control) return Error{ErrorAction::fail_link, "a message before the hello"};
  return read_message<schemas::LinkControl>(
      frame.payload.asPtr(), "a control frame of a link", [&](schemas::LinkControl::Reader in) -> Result<Hello> {
        if (!in.isHello()) return Error{ErrorAction::fail_link, "another frame before the hello"};
        const auto hello = in.getHello();
        if (hello.getVersion() != kLinkVersion) {
          return Error{ErrorAction::refuse, "it speaks link version " + std::to_string(hello.getVersion()) +
                                                ", this supervisor speaks " + std::to_string(kLinkVersion) +
                                                ": run one release of kintsugi on both"};
        }
        if (!proves(hello.getProof(), prove(secret, kDialerLabel, binding))) {
          return Error{ErrorAction::refuse, "its secret is not the one of this cluster"};
        }
        if (hello.getName().size() > kMaxNameBytes) return Error{ErrorAction::refuse, "its name is too long"};
        switch (hello.getRole()) {
          case schemas::LinkRole::NODE: return Hello{LinkRole::node, {hello.getIncarnation()}, hello.getName()};
          case schemas::LinkRole::CLIENT: return Hello{LinkRole::client, {hello.getIncarnation()}, hello.getName()};
        }
        return Error{ErrorAction::refuse,
                     "its role is unknown to this supervisor: run one release of kintsugi on both"};
      });
}

Frame encode_welcome(Incarnation incarnation, const Bytes32& secret, const Bytes32& binding) {
  capnp::MallocMessageBuilder builder;
  auto out = builder.initRoot<schemas::LinkControl>().initWelcome();
  out.setIncarnation(incarnation.value);
  out.setProof(as_data(prove(secret, kListenerLabel, binding)));
  return capnp::messageToFlatArray(builder);
}

Frame encode_refused(std::string_view reason) {
  capnp::MallocMessageBuilder builder;
  builder.initRoot<schemas::LinkControl>().setRefused(std::string(reason.substr(0, 1024)));
  return capnp::messageToFlatArray(builder);
}

Result<Incarnation> check_answer(const DecodedFrame& frame, const Bytes32& secret, const Bytes32& binding,
                                 const std::string& peer) {
  const Error stranger{ErrorAction::fail_link, peer + " gave no answer that a kintsugi supervisor gives"};
  if (frame.header.kind != FrameKind::control) return stranger;
  return read_message<schemas::LinkControl>(
      frame.payload.asPtr(), "a control frame of a link", [&](schemas::LinkControl::Reader in) -> Result<Incarnation> {
        if (in.isRefused()) {
          return Error{ErrorAction::refuse, "the supervisor at " + peer +
                                                " refused the join token: " + std::string(in.getRefused()) +
                                                "; get a new one from `kintsugi supervise`"};
        }
        if (!in.isWelcome()) return stranger;
        if (!proves(in.getWelcome().getProof(), prove(secret, kListenerLabel, binding))) {
          return Error{ErrorAction::refuse, "the supervisor at " + peer +
                                                " does not know the secret of the join token; "
                                                "get a new one from `kintsugi supervise`"};
        }
        return Incarnation{in.getWelcome().getIncarnation()};
      });
}

}  // namespace kintsugi::transport
