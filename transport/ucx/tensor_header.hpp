// The header of a data-plane message as Cap'n Proto: one segment of fixed size, so that it lies on the stack.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "transport/point_to_point.hpp"

namespace kintsugi::transport::ucx {

struct TensorHeader {
  Fence fence;
  RankId from;
  MessageKey key;
  std::uint64_t bytes = 0;
  std::uint64_t released = 0;
};

constexpr std::size_t kTensorHeaderBytes = 72;
using EncodedHeader = std::array<std::byte, kTensorHeaderBytes>;

EncodedHeader encode(const TensorHeader& header);
// Any bytes are safe; nothing for what is no header.
std::optional<TensorHeader> decode(std::span<const std::byte> bytes);

}  // namespace kintsugi::transport::ucx
