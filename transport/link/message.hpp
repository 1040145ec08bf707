// Cap'n Proto on a link. Foreign bytes are read under strict limits, and its exceptions end here: reading is lazy, so a
// bad pointer may show at any accessor.
#pragma once

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <string>
#include <utility>

#include "base/result.hpp"
#include "transport/link/frame_codec.hpp"

namespace kintsugi::transport {

// A reader may visit every word of the message eight times: enough for any honest handler, and no amplification by
// pointers that all aim at one object.
inline capnp::ReaderOptions strict_reader_options(std::size_t word_count) {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = 1024 + 8 * static_cast<std::uint64_t>(word_count);
  options.nestingLimit = 32;
  return options;
}

inline Frame encode_message(capnp::MessageBuilder& builder) { return capnp::messageToFlatArray(builder); }

// Calls `read(Root::Reader)`, which returns a Result<T>; malformed bytes become Error{fail_link}.
template <class Root, class Read>
auto read_message(kj::ArrayPtr<const capnp::word> words, Read&& read)
    -> decltype(read(std::declval<typename Root::Reader>())) {
  try {
    capnp::FlatArrayMessageReader reader(words, strict_reader_options(words.size()));
    return read(reader.getRoot<Root>());
  } catch (const kj::Exception& e) {
    return Error{ErrorAction::fail_link, std::string("malformed message: ") + e.getDescription().cStr()};
  }
}

}  // namespace kintsugi::transport
