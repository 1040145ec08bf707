// Memory that outlives a rank process: memfds made by the node process, sealed against shrinking so that no peer can
// turn a read into SIGBUS, and mapped by whoever holds the descriptor.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/file.hpp"
#include "base/result.hpp"

namespace kintsugi::transport::shm {

// Zero-filled and sealed (F_SEAL_SHRINK | F_SEAL_GROW). `name` shows in /proc/PID/maps only.
Result<FileDescriptor> create_shared_memory(const char* name, std::size_t bytes);

enum class Access : unsigned char { read, read_write };

// A whole memfd, mapped shared, huge pages advised; unmapped when let go.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping();
  Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // Seals the descriptor against shrinking where it is not yet. Error{tell_user} when that or the mapping fails.
  static Result<Mapping> map(int memfd, Access access);

  // Writable only under Access::read_write.
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit Mapping(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

}  // namespace kintsugi::transport::shm
