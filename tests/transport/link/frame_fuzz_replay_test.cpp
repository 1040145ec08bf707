// A seeded corpus through the fuzz target (tests/fuzz/link_frame_fuzz.cpp): real streams, each with bytes changed.
#include <gtest/gtest.h>

#include <vector>

#include "base/philox.hpp"
#include "transport/link/greeting.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace kintsugi::transport {
namespace {

void append(std::vector<std::uint8_t>& out, const Frame& frame) {
  const auto bytes = frame.asBytes();
  const FrameHeaderBytes header =
      encode_frame_header({FrameKind::control, 0, static_cast<std::uint32_t>(bytes.size())});
  for (const std::byte b : header) out.push_back(std::to_integer<std::uint8_t>(b));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

std::vector<std::uint8_t> honest_stream() {
  std::vector<std::uint8_t> stream{40};
  const Bytes32 zero{};
  append(stream, encode_hello({LinkRole::client, {7}, "host-with-a-name"}, zero, zero));
  append(stream, encode_welcome({8}, zero, zero));
  append(stream, encode_refused("because"));
  return stream;
}

TEST(FrameFuzzReplay, changed_bytes_never_break_the_decoder) {
  const std::vector<std::uint8_t> honest = honest_stream();
  const PhiloxKey key = philox_key(20260101);
  for (std::uint64_t round = 0; round < 20000; ++round) {
    std::vector<std::uint8_t> stream = honest;
    const std::uint64_t changes = 1 + philox_u64(key, round, 0) % 8;
    for (std::uint64_t c = 1; c <= changes; ++c) {
      const std::uint64_t bits = philox_u64(key, round, c);
      stream[bits % stream.size()] = static_cast<std::uint8_t>(bits >> 56);
    }
    stream.resize(1 + philox_u64(key, round, 9) % stream.size());
    ASSERT_EQ(0, LLVMFuzzerTestOneInput(stream.data(), stream.size()));
  }
}

TEST(FrameFuzzReplay, noise_never_breaks_the_decoder) {
  const PhiloxKey key = philox_key(7);
  for (std::uint64_t round = 0; round < 2000; ++round) {
    std::vector<std::uint8_t> stream{8, 'K', 'L', kLinkVersion, 1, 64, 0, 0, 0};
    for (std::uint64_t i = 0; i < 64; ++i) stream.push_back(static_cast<std::uint8_t>(philox_u64(key, round, i)));
    ASSERT_EQ(0, LLVMFuzzerTestOneInput(stream.data(), stream.size()));
  }
}

}  // namespace
}  // namespace kintsugi::transport
