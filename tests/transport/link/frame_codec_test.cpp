#include "transport/link/frame_codec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

namespace kintsugi::transport {
namespace {

using testing::HasSubstr;

std::vector<std::byte> wire(std::size_t payload_bytes, std::uint8_t descriptors = 0) {
  const FrameHeaderBytes header =
      encode_frame_header({FrameKind::message, descriptors, static_cast<std::uint32_t>(payload_bytes)});
  std::vector<std::byte> out(header.begin(), header.end());
  for (std::size_t i = 0; i < payload_bytes; ++i) out.push_back(static_cast<std::byte>(i * 7 + 1));
  return out;
}

// Feeds `bytes` in reads of at most `chunk`; the frames that came out.
Result<std::vector<DecodedFrame>> decode(FrameDecoder& decoder, std::span<const std::byte> bytes, std::size_t chunk) {
  std::vector<DecodedFrame> frames;
  while (!bytes.empty()) {
    const std::span<std::byte> want = decoder.want();
    const std::size_t n = std::min({want.size(), chunk, bytes.size()});
    std::memcpy(want.data(), bytes.data(), n);
    bytes = bytes.subspan(n);
    Result<std::optional<DecodedFrame>> frame = decoder.filled(n);
    if (!frame) return frame.error();
    if (frame->has_value()) frames.push_back(std::move(**frame));
  }
  return frames;
}

FrameHeaderBytes header_with(std::size_t index, std::uint8_t value) {
  FrameHeaderBytes bytes = encode_frame_header({FrameKind::message, 0, 64});
  bytes[index] = static_cast<std::byte>(value);
  return bytes;
}

std::string reason(const FrameHeaderBytes& bytes, std::size_t cap = 1024) {
  const Result<FrameHeader> header = decode_frame_header(bytes, cap);
  return header ? "" : header.error().message;
}

TEST(FrameCodec, a_header_comes_back_as_it_went) {
  const FrameHeader header{FrameKind::control, 8, 0x01020300};
  const Result<FrameHeader> back = decode_frame_header(encode_frame_header(header), 1u << 30);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, header);
}

TEST(FrameCodec, frames_split_at_every_byte_come_out_whole) {
  std::vector<std::byte> stream = wire(24);
  const std::vector<std::byte> second = wire(8, 3);
  stream.insert(stream.end(), second.begin(), second.end());
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    FrameDecoder decoder;
    std::vector<DecodedFrame> frames = std::move(decode(decoder, std::span(stream).first(cut), 1000)).value();
    std::vector<DecodedFrame> rest = std::move(decode(decoder, std::span(stream).subspan(cut), 1000)).value();
    std::move(rest.begin(), rest.end(), std::back_inserter(frames));
    ASSERT_EQ(frames.size(), 2u) << "cut at " << cut;
    EXPECT_EQ(0, std::memcmp(frames[0].payload.begin(), stream.data() + 8, 24));
    EXPECT_EQ(frames[1].header.descriptor_count, 3);
    EXPECT_TRUE(decoder.between_frames());
  }
}

TEST(FrameCodec, a_truncated_frame_is_no_frame_and_shows) {
  const std::vector<std::byte> stream = wire(24);
  for (std::size_t cut = 1; cut < stream.size(); ++cut) {
    FrameDecoder decoder;
    const auto frames = decode(decoder, std::span(stream).first(cut), 3);
    ASSERT_TRUE(frames.ok());
    EXPECT_TRUE(frames->empty());
    EXPECT_FALSE(decoder.between_frames());
  }
}

TEST(FrameCodec, every_fault_of_a_header_is_named) {
  EXPECT_THAT(reason(header_with(0, 'G')), HasSubstr("not a kintsugi frame"));
  EXPECT_THAT(reason(header_with(2, 9)), HasSubstr("speaks link version 9, this process speaks version 1"));
  EXPECT_THAT(reason(header_with(3, 7)), HasSubstr("unknown frame kind 7"));
  EXPECT_THAT(reason(header_with(3, 0x90)), HasSubstr("9 file descriptors"));
  EXPECT_THAT(reason(header_with(4, 65)), HasSubstr("no whole number of words"));
  EXPECT_THAT(reason(header_with(4, 0)), HasSubstr("no whole number of words"));
  EXPECT_THAT(reason(header_with(7, 1)), HasSubstr("the cap of this link is 1024"));
}

TEST(FrameCodec, the_cap_itself_is_allowed_and_one_word_more_is_not) {
  EXPECT_TRUE(decode_frame_header(encode_frame_header({FrameKind::message, 0, 1024}), 1024).ok());
  EXPECT_FALSE(decode_frame_header(encode_frame_header({FrameKind::message, 0, 1032}), 1024).ok());
}

}  // namespace
}  // namespace kintsugi::transport
