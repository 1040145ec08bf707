// Files that are either whole or absent, and descriptors that are always closed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace kintsugi {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

// "cannot open PATH: No such file or directory", from errno.
std::string errno_message(std::string_view what, std::string_view path);

// Writes `path` through a temporary beside it: write, fsync, rename, fsync of the directory. On an error the old file
// stays as it was and the temporary is gone. One writer a path at a time within a process.
Result<void> write_file_atomically(const std::string& path, std::span<const std::byte> bytes);
// Regular files only: anything else, or more than `limit_bytes`, is an error.
// The same through a symbolic link, which stays; into a device, pipe or socket, as it comes.
Result<void> write_to(const std::string& path, std::span<const std::byte> bytes);
Result<std::vector<std::byte>> read_file(const std::string& path, std::size_t limit_bytes);
Result<std::string> read_text_file(const std::string& path, std::size_t limit_bytes);
// Makes a rename or a new entry in `directory` durable.
Result<void> fsync_directory(const std::string& directory);

}  // namespace kintsugi
