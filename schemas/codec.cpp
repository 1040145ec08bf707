#include "schemas/codec.hpp"

#include <kj/array.h>

#include <cstring>

namespace kintsugi {

namespace {
// Words a reader may visit for each word received: enough for shared structs, too little for an amplification.
constexpr std::uint64_t kTraversalFactor = 8;
constexpr int kNestingLimit = 32;
}  // namespace

std::vector<std::byte> encode_message(capnp::MessageBuilder& message) {
  const kj::Array<capnp::word> words = capnp::messageToFlatArray(message);
  const auto bytes = words.asBytes();
  std::vector<std::byte> out(bytes.size());
  std::memcpy(out.data(), bytes.begin(), bytes.size());
  return out;
}

Result<DecodedMessage> DecodedMessage::from_bytes(std::span<const std::byte> bytes, std::string_view what) {
  if (bytes.empty() || bytes.size() % sizeof(capnp::word) != 0) {
    return schemas_detail::decode_failure(what, "its size is not a whole number of words");
  }
  DecodedMessage message;
  const std::size_t count = bytes.size() / sizeof(capnp::word);
  message.words_ = std::make_unique<capnp::word[]>(count);
  std::memcpy(static_cast<void*>(message.words_.get()), bytes.data(), bytes.size());
  capnp::ReaderOptions options;
  options.traversalLimitInWords = count * kTraversalFactor + 1024;
  options.nestingLimit = kNestingLimit;
  try {
    message.reader_ = std::make_unique<capnp::FlatArrayMessageReader>(
        kj::ArrayPtr<const capnp::word>(message.words_.get(), count), options);
  } catch (const kj::Exception& e) {
    return schemas_detail::decode_failure(what, e.getDescription().cStr());
  }
  return message;
}

Error schemas_detail::decode_failure(std::string_view what, std::string_view description) {
  return {ErrorAction::fail_link, "cannot decode " + std::string(what) + ": " + std::string(description)};
}

}  // namespace kintsugi
