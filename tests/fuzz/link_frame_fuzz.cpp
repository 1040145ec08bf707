// Hostile bytes on a control port: the frame decoder, then whatever reads a whole frame before or after the greeting.
// First byte: how many bytes a read brings.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "schemas/codec.hpp"
#include "schemas/link.capnp.h"
#include "transport/link/greeting.hpp"

namespace {

using namespace kintsugi;
using namespace kintsugi::transport;

void read_as_everything(const DecodedFrame& frame) {
  const Bytes32 zero{};
  static_cast<void>(check_hello(frame, zero, zero));
  static_cast<void>(check_answer(frame, zero, zero, "fuzz:1"));
  static_cast<void>(read_message<schemas::LinkControl>(frame.payload.asPtr(), "a control frame of a link",
                                                       [](schemas::LinkControl::Reader in) -> Result<void> {
                                                         static_cast<void>(in.totalSize());
                                                         return {};
                                                       }));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t chunk = std::size_t{1} + data[0];
  std::span<const std::byte> rest = std::as_bytes(std::span(data + 1, size - 1));
  FrameDecoder decoder(64 * kKiB);
  while (!rest.empty()) {
    const std::span<std::byte> want = decoder.want();
    const std::size_t n = std::min({want.size(), rest.size(), chunk});
    std::memcpy(want.data(), rest.data(), n);
    rest = rest.subspan(n);
    const Result<std::optional<DecodedFrame>> frame = decoder.filled(n);
    if (!frame) return 0;
    if (frame->has_value()) read_as_everything(**frame);
  }
  return 0;
}
