#include "transport/link/frame_codec.hpp"

#include <fmt/format.h>

#include <utility>

namespace kintsugi::transport {

namespace {

constexpr std::uint8_t kMagic0 = 'K';
constexpr std::uint8_t kMagic1 = 'L';

std::uint8_t u8(std::byte b) {
  return std::to_integer<std::uint8_t>(b);
}

Error bad_frame(std::string why) {
  return {ErrorAction::fail_link, std::move(why)};
}

}  // namespace

FrameHeaderBytes encode_frame_header(const FrameHeader& header) {
  KINTSUGI_ASSERT(header.descriptor_count <= kMaxFrameDescriptors);
  KINTSUGI_ASSERT(header.payload_bytes > 0 && header.payload_bytes % sizeof(capnp::word) == 0);
  FrameHeaderBytes out{std::byte{kMagic0}, std::byte{kMagic1}, std::byte{kLinkVersion},
                       static_cast<std::byte>(static_cast<std::uint8_t>(header.kind) | (header.descriptor_count << 4))};
  for (std::size_t i = 0; i < 4; ++i) out[4 + i] = static_cast<std::byte>(header.payload_bytes >> (8 * i));
  return out;
}

Result<FrameHeader> decode_frame_header(const FrameHeaderBytes& bytes, std::size_t cap_bytes) {
  if (u8(bytes[0]) != kMagic0 || u8(bytes[1]) != kMagic1) {
    return bad_frame(
        fmt::format("not a kintsugi frame: it starts with bytes {:02x} {:02x}", u8(bytes[0]), u8(bytes[1])));
  }
  if (u8(bytes[2]) != kLinkVersion) {
    return bad_frame(
        fmt::format("the peer speaks link version {}, this process speaks version {}: run one release of "
                    "kintsugi on both sides",
                    u8(bytes[2]), kLinkVersion));
  }
  const std::uint8_t kind = u8(bytes[3]) & 0x0f;
  FrameHeader header{static_cast<FrameKind>(kind), static_cast<std::uint8_t>(u8(bytes[3]) >> 4), 0};
  for (std::size_t i = 0; i < 4; ++i) header.payload_bytes |= std::uint32_t{u8(bytes[4 + i])} << (8 * i);
  if (kind > static_cast<std::uint8_t>(FrameKind::control))
    return bad_frame(fmt::format("unknown frame kind {}", kind));
  if (header.descriptor_count > kMaxFrameDescriptors) {
    return bad_frame(fmt::format("a frame with {} file descriptors, the limit is {}", header.descriptor_count,
                                 kMaxFrameDescriptors));
  }
  if (header.payload_bytes == 0 || header.payload_bytes % sizeof(capnp::word) != 0) {
    return bad_frame(fmt::format("a frame of {} bytes, which is no whole number of words", header.payload_bytes));
  }
  if (header.payload_bytes > cap_bytes) {
    return bad_frame(fmt::format("a frame of {} bytes, the cap of this link is {}", header.payload_bytes, cap_bytes));
  }
  return header;
}

std::span<std::byte> FrameDecoder::want() {
  const std::span<std::byte> whole = header_ ? std::as_writable_bytes(std::span(payload_.begin(), payload_.size()))
                                             : std::span<std::byte>(header_bytes_);
  KINTSUGI_ASSERT(filled_ < whole.size());
  return whole.subspan(filled_);
}

Result<std::optional<DecodedFrame>> FrameDecoder::filled(std::size_t byte_count) {
  KINTSUGI_ASSERT(byte_count <= want().size());
  const bool whole = byte_count == want().size();
  filled_ += byte_count;
  if (!whole) return std::optional<DecodedFrame>();
  filled_ = 0;
  if (!header_) {
    KINTSUGI_TRY_ASSIGN(header_, decode_frame_header(header_bytes_, cap_bytes_));
    payload_ = kj::heapArray<capnp::word>(header_->payload_bytes / sizeof(capnp::word));
    return std::optional<DecodedFrame>();
  }
  return std::optional(DecodedFrame{*std::exchange(header_, std::nullopt), std::move(payload_)});
}

}  // namespace kintsugi::transport
