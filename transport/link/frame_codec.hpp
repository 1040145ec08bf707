// Frames of a link: 8 bytes of header, then one Cap'n Proto message in flat form. No sockets here.
//
//   byte 0-1  "KL"      byte 2  version      byte 3  kind (low half), count of file descriptors (high half)
//   byte 4-7  payload bytes, little-endian, a multiple of 8, at most the link's cap
//
// The header is a whole word, so a payload read behind it stays aligned. Anything else on the wire ends the link.
#pragma once

#include <capnp/common.h>
#include <kj/array.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.hpp"
#include "base/units.hpp"

namespace kintsugi::transport {

// A flat Cap'n Proto message, aligned.
using Frame = kj::Array<capnp::word>;

constexpr std::uint8_t kLinkVersion = 1;
constexpr std::size_t kFrameHeaderBytes = 8;
constexpr std::size_t kMaxFrameDescriptors = 8;
constexpr std::size_t kDefaultFrameCapBytes = 16 * kMiB;

enum class FrameKind : std::uint8_t {
  message,  // belongs to the owner of the link
  control,  // schemas::LinkControl
};

struct FrameHeader {
  FrameKind kind = FrameKind::message;
  std::uint8_t descriptor_count = 0;
  std::uint32_t payload_bytes = 0;
  bool operator==(const FrameHeader&) const = default;
};

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

FrameHeaderBytes encode_frame_header(const FrameHeader& header);
// Error{fail_link} names what is wrong: no frame at all, another version, an unknown kind, a length out of bounds.
Result<FrameHeader> decode_frame_header(const FrameHeaderBytes& bytes, std::size_t cap_bytes);

struct DecodedFrame {
  FrameHeader header;
  Frame payload;
};

// Says where the next bytes of the stream go, so that a payload is read in place and nothing past the frame's end is
// taken from the stream.
class FrameDecoder {
 public:
  explicit FrameDecoder(std::size_t cap_bytes = kDefaultFrameCapBytes) : cap_bytes_(cap_bytes) {}

  // Never empty. Valid until `filled`.
  std::span<std::byte> want();
  // The first `byte_count` bytes of want() were written. The frame, if that was its last byte. After an error only
  // destruction is allowed.
  Result<std::optional<DecodedFrame>> filled(std::size_t byte_count);
  bool between_frames() const { return !header_ && filled_ == 0; }

 private:
  std::size_t cap_bytes_;
  FrameHeaderBytes header_bytes_{};
  std::optional<FrameHeader> header_;
  Frame payload_;
  std::size_t filled_ = 0;  // bytes of the header, or of the payload once the header is known
};

}  // namespace kintsugi::transport
