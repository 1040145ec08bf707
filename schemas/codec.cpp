#include "schemas/codec.hpp"

#include <kj/array.h>

#include <cstring>
#include <string>

namespace kintsugi {

capnp::ReaderOptions strict_reader_options(std::size_t word_count) {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = 1024 + 8 * static_cast<std::uint64_t>(word_count);
  options.nestingLimit = 32;
  return options;
}

std::vector<std::byte> encode_message(capnp::MessageBuilder& message) {
  const kj::Array<capnp::word> words = capnp::messageToFlatArray(message);
  const auto bytes = words.asBytes();
  std::vector<std::byte> out(bytes.size());
  std::memcpy(out.data(), bytes.begin(), bytes.size());
  return out;
}

Error decode_failure(std::string_view what, std::string_view why) {
  return {ErrorAction::fail_link, "cannot decode " + std::string(what) + ": " + std::string(why)};
}

kj::Array<capnp::word> to_words(std::span<const std::byte> bytes) {
  if (bytes.empty() || bytes.size() % sizeof(capnp::word) != 0) return {};
  kj::Array<capnp::word> words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));
  std::memcpy(static_cast<void*>(words.begin()), bytes.data(), bytes.size());
  return words;
}

}  // namespace kintsugi
