#include "base/file.hpp"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace kintsugi {

void FileDescriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string errno_message(std::string_view what, std::string_view path) {
  const int error = errno;  // before anything allocates
  return std::string(what) + " " + std::string(path) + ": " + strerror(error);
}

namespace {

Error file_error(std::string_view what, std::string_view path) {
  return {ErrorAction::tell_user, errno_message(what, path)};
}

Result<void> write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error("cannot write", path);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace

Result<void> fsync_directory(const std::string& directory) {
  const FileDescriptor fd(::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return file_error("cannot open directory", directory);
  if (::fsync(fd.get()) != 0) return file_error("cannot fsync directory", directory);
  return {};
}

Result<void> write_file_atomically(const std::string& path, std::span<const std::byte> bytes) {
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  const FileDescriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return file_error("cannot create", temporary);
  Result<void> written = write_all(fd.get(), bytes, temporary);
  if (written && ::fsync(fd.get()) != 0) written = file_error("cannot fsync", temporary);
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0) written = file_error("cannot rename to", path);
  if (!written) {
    ::unlink(temporary.c_str());
    return written;
  }
  return fsync_directory(std::filesystem::path(path).parent_path().string());
}

Result<void> write_to(const std::string& path, std::span<const std::byte> bytes) {
  std::error_code failed;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, failed);
  const std::string real = failed ? path : target.string();
  if (!std::filesystem::exists(real, failed) || std::filesystem::is_regular_file(real, failed)) {
    return write_file_atomically(real, bytes);
  }
  const FileDescriptor fd(::open(real.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd.valid()) return file_error("cannot open", real);
  return write_all(fd.get(), bytes, real);
}

Result<std::vector<std::byte>> read_file(const std::string& path, std::size_t limit_bytes) {
  // O_NONBLOCK: opening a named pipe must not wait for its writer; it means nothing to a regular file.
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return file_error("cannot open", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return file_error("cannot stat", path);
  if (!S_ISREG(info.st_mode)) {
    return Error{ErrorAction::tell_user, "cannot read " + path + ": it is not a regular file"};
  }
  if (static_cast<std::size_t>(info.st_size) > limit_bytes) {
    return Error{ErrorAction::tell_user, "cannot read " + path + ": it has " + std::to_string(info.st_size) +
                                             " bytes, the limit is " + std::to_string(limit_bytes)};
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(info.st_size));
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::read(fd.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error("cannot read", path);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

Result<std::string> read_text_file(const std::string& path, std::size_t limit_bytes) {
  KINTSUGI_TRY_ASSIGN(const std::vector<std::byte> bytes, read_file(path, limit_bytes));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace kintsugi
