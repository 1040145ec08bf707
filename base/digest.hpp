// 128-bit digests. XXH3-128 (xxHash specification 0.8), streaming and one-shot; the Python package xxhash gives the
// same values. It detects corruption and names states; it is no defence against a forger.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kintsugi {

struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  constexpr auto operator<=>(const Digest&) const = default;
};

// 32 lowercase hexadecimal digits, high half first (XXH3's canonical form).
std::string to_hex(Digest digest);
std::optional<Digest> digest_from_hex(std::string_view text);

class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  void reset();
  void update(std::span<const std::byte> bytes);
  void update(const void* data, std::size_t bytes);
  // Little-endian bytes of the value; the host is little-endian (asserted at build time).
  void update_u64(std::uint64_t value);
  // Length first, then bytes, so that two strings never run together.
  void update_string(std::string_view text);
  Digest finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Digest digest_of(std::span<const std::byte> bytes);

}  // namespace kintsugi
