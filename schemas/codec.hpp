// Cap'n Proto messages as bytes and back, the same way everywhere: wire, votes, journal and files. Foreign bytes are
// read under strict limits, and Cap'n Proto's exceptions end here: reading is lazy, so a bad pointer may show at any
// accessor.
#pragma once

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace kintsugi {

// A reader may visit every word of a message eight times: enough for any honest use, and no amplification by pointers
// that all aim at one object.
capnp::ReaderOptions strict_reader_options(std::size_t word_count);

std::vector<std::byte> encode_message(capnp::MessageBuilder& message);

// Error{fail_link}: "cannot decode WHAT: why".
Error decode_failure(std::string_view what, std::string_view why);

// Calls `read(Root::Reader)`, which returns a Result<T>. `what` names the message in errors.
template <class Root, class Read>
auto read_message(kj::ArrayPtr<const capnp::word> words, std::string_view what, Read&& read)
    -> decltype(read(std::declval<typename Root::Reader>())) {
  try {
    capnp::FlatArrayMessageReader reader(words, strict_reader_options(words.size()));
    return read(reader.getRoot<Root>());
  } catch (const kj::Exception& e) {
    return decode_failure(what, e.getDescription().cStr());
  }
}

// An aligned copy; nothing when the size is no whole number of words.
kj::Array<capnp::word> to_words(std::span<const std::byte> bytes);

// The same for bytes of any alignment.
template <class Root, class Read>
auto read_message(std::span<const std::byte> bytes, std::string_view what, Read&& read)
    -> decltype(read(std::declval<typename Root::Reader>())) {
  const kj::Array<capnp::word> words = to_words(bytes);
  if (words.size() == 0) return decode_failure(what, "its size is not a whole number of words");
  return read_message<Root>(words.asPtr(), what, std::forward<Read>(read));
}

}  // namespace kintsugi
