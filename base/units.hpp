// Sizes and their text form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace kintsugi {

constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kGiB = std::size_t{1} << 30;

// To the next multiple of `alignment`, which need not be a power of two.
constexpr std::size_t align_up(std::size_t n, std::size_t alignment) {
  return (n + alignment - 1) / alignment * alignment;
}
// a >= 0, b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// "1.5 GiB", "12.0 KiB", "7 B".
std::string format_bytes(std::uint64_t bytes);

}  // namespace kintsugi
