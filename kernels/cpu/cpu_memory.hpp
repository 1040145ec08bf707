// Memory straight from mmap: zero-filled, and in huge pages from 2 MiB on, whose first touch is seven times cheaper.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "base/result.hpp"

namespace kintsugi::kernels::cpu {

// Pages of this process, unmapped by their owner's end.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  ~Mapping() { reset(); }
  Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      reset();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = other.bytes_;
    }
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void reset();

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

enum class Access : unsigned char { none, read, read_write };

// Private pages; `bytes` > 0. Error{tell_user} with the size asked for and what is free when memory is short.
Result<Mapping> map_private(std::size_t bytes);
// `bytes` of a memfd from `offset_bytes` (page aligned); the descriptor is not kept. Error{tell_user}.
Result<Mapping> map_memfd(int memfd, std::size_t offset_bytes, std::size_t bytes, Access access);

// Error{tell_user} if the machine has less than `bytes` to give without swapping.
Result<void> check_available(std::size_t bytes);

}  // namespace kintsugi::kernels::cpu
