#include "base/digest.hpp"

#include <bit>

#define XXH_STATIC_LINKING_ONLY  // the size of the state
#include <xxhash.h>
#ifdef __x86_64__
#include <xxh_x86dispatch.h>  // by the ISA found at run time: AVX-512 hashes the optimizer's state twice as fast as SSE2
#endif

namespace kintsugi {

static_assert(std::endian::native == std::endian::little, "stored formats are little-endian");

namespace {
Digest from_xxh(XXH128_hash_t h) {
  return {h.high64, h.low64};
}
}  // namespace

struct Hasher::State {
  alignas(64) XXH3_state_t xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  reset();
}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::reset() {
  XXH3_128bits_reset(&state_->xxh);
}
void Hasher::update(std::span<const std::byte> bytes) {
  update(bytes.data(), bytes.size());
}
void Hasher::update(const void* data, std::size_t bytes) {
  XXH3_128bits_update(&state_->xxh, data, bytes);
}
void Hasher::update_u64(std::uint64_t value) {
  update(&value, sizeof value);
}
void Hasher::update_string(std::string_view text) {
  update_u64(text.size());
  update(text.data(), text.size());
}
Digest Hasher::finish() const {
  return from_xxh(XXH3_128bits_digest(&state_->xxh));
}

Digest digest_of(std::span<const std::byte> bytes) {
  return from_xxh(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string to_hex(Digest digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out(32, '0');
  for (int i = 0; i < 16; ++i) {
    out[static_cast<std::size_t>(15 - i)] = kDigits[(digest.high >> (4 * i)) & 15];
    out[static_cast<std::size_t>(31 - i)] = kDigits[(digest.low >> (4 * i)) & 15];
  }
  return out;
}

std::optional<Digest> digest_from_hex(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  Digest d;
  for (std::size_t i = 0; i < 32; ++i) {
    const char c = text[i];
    std::uint64_t v = 0;
    if (c >= '0' && c <= '9')
      v = static_cast<std::uint64_t>(c - '0');
    else if (c >= 'a' && c <= 'f')
      v = static_cast<std::uint64_t>(c - 'a') + 10;
    else
      return std::nullopt;
    std::uint64_t& half = i < 16 ? d.high : d.low;
    half = (half << 4) | v;
  }
  return d;
}

}  // namespace kintsugi
