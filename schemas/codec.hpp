// Cap'n Proto messages as flat byte arrays, encoded and decoded the same way everywhere: wire, journal and files.
#pragma once

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace kintsugi {

std::vector<std::byte> encode_message(capnp::MessageBuilder& message);

// Owns an aligned copy of the bytes. Reading never goes past them: foreign bytes can at worst be refused.
class DecodedMessage {
 public:
  // Error{fail_link} when the segment table does not fit `bytes`. `what` names the message in errors.
  static Result<DecodedMessage> from_bytes(std::span<const std::byte> bytes, std::string_view what);

  // Throws kj::Exception inside accessors when a pointer is out of bounds: read through `read_message`.
  capnp::MessageReader& reader() { return *reader_; }

 private:
  std::unique_ptr<capnp::word[]> words_;
  std::unique_ptr<capnp::FlatArrayMessageReader> reader_;
};

namespace schemas_detail {
Error decode_failure(std::string_view what, std::string_view description);
}

// Calls read(root) and turns Cap'n Proto's exceptions into an Error{fail_link}. The one place where they are caught.
template <class Root, class Read>
auto read_message(std::span<const std::byte> bytes, std::string_view what, Read read)
    -> decltype(read(std::declval<typename Root::Reader>())) {
  Result<DecodedMessage> decoded = DecodedMessage::from_bytes(bytes, what);
  if (!decoded) return decoded.error();
  try {
    return read(decoded->reader().template getRoot<Root>());
  } catch (const kj::Exception& e) {
    return schemas_detail::decode_failure(what, e.getDescription().cStr());
  }
}

}  // namespace kintsugi
