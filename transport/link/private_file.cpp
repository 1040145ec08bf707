#include "transport/link/private_file.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.hpp"

namespace kintsugi::transport {

namespace {

Error file_error(std::string_view what, const std::string& path) {
  return {ErrorAction::tell_user, errno_message(what, path)};
}

Result<void> write_and_sync(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error("cannot write", path);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::fsync(fd) != 0) return file_error("cannot fsync", path);
  return {};
}

}  // namespace

Result<void> write_private_file(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  ::unlink(temporary.c_str());
  const FileDescriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return file_error("cannot create", temporary);
  Result<void> written = write_and_sync(fd.get(), text, temporary);
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0) written = file_error("cannot rename to", path);
  if (!written) {
    ::unlink(temporary.c_str());
    return written;
  }
  return fsync_directory(std::filesystem::path(path).parent_path().string());
}

Result<std::string> read_private_file(const std::string& path, std::size_t limit_bytes) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return file_error("cannot read", path);
  if ((info.st_mode & 077) != 0) {
    return Error{ErrorAction::tell_user, path + " holds a secret and others may read it: run `chmod 600 " + path + "`"};
  }
  return read_text_file(path, limit_bytes);
}

}  // namespace kintsugi::transport
