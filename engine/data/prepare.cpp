#include "engine/data/prepare.hpp"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/file.hpp"
#include "base/units.hpp"
#include "engine/data/unigram.hpp"

namespace kintsugi {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kChunkBytes = 1 * kMiB;
constexpr std::uint64_t kProgressBytes = 16 * kMiB;

// The output under its temporary name. A document that turns out binary is taken back.
class TokenWriter {
 public:
  static Result<TokenWriter> create(const std::string& path) {
    TokenWriter writer;
    writer.path_ = path;
    writer.temporary_ = path + ".tmp." + std::to_string(::getpid());
    writer.fd_ = FileDescriptor(::open(writer.temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!writer.fd_.valid()) return Error{ErrorAction::tell_user, errno_message("cannot create", writer.temporary_)};
    return writer;
  }
  TokenWriter(TokenWriter&&) = default;
  ~TokenWriter() {
    if (fd_.valid()) ::unlink(temporary_.c_str());
  }

  Result<void> append(const unsigned char* bytes, std::size_t count) {
    tokens_.assign(bytes, bytes + count);
    const char* from = reinterpret_cast<const char*>(tokens_.data());
    for (std::size_t left = count * sizeof(std::uint16_t); left > 0;) {
      const ssize_t n = ::write(fd_.get(), from, left);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Error{ErrorAction::tell_user, errno_message("cannot write", temporary_)};
      from += n;
      left -= static_cast<std::size_t>(n);
    }
    return {};
  }

  Result<void> cut_to(std::uint64_t tokens) {
    const auto bytes = static_cast<off_t>(tokens * sizeof(std::uint16_t));
    if (::ftruncate(fd_.get(), bytes) != 0 || ::lseek(fd_.get(), bytes, SEEK_SET) < 0) {
      return Error{ErrorAction::tell_user, errno_message("cannot truncate", temporary_)};
    }
    return {};
  }

  Result<void> publish() {
    if (::fsync(fd_.get()) != 0) return Error{ErrorAction::tell_user, errno_message("cannot fsync", temporary_)};
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
      return Error{ErrorAction::tell_user, errno_message("cannot rename to", path_)};
    }
    fd_.reset();
    return fsync_directory(fs::path(path_).parent_path().string());
  }

 private:
  TokenWriter() = default;
  std::string path_, temporary_;
  FileDescriptor fd_;
  std::vector<std::uint16_t> tokens_;
};

class Preparation {
 public:
  Preparation(const PrepareOptions& options, TokenWriter writer) : options_(options), writer_(std::move(writer)) {}

  Result<void> add_input(const std::string& input) {
    std::error_code failed;
    const fs::file_status status = fs::status(input, failed);
    if (!fs::exists(status)) return Error{ErrorAction::tell_user, input + ": no such file or directory"};
    return fs::is_directory(status) ? add_directory(input) : add_file(input);
  }

  Result<PrepareStatistics> finish() {
    if (statistics_.tokens == 0) {
      return Error{ErrorAction::tell_user, "no text to prepare: " + statistics_.summary() +
                                               ". Name files or folders with text; " + options_.output +
                                               " is unchanged."};
    }
    statistics_.unigram_entropy_nats = unigram_entropy_nats(counts_);
    KINTSUGI_TRY(writer_.publish());
    return statistics_;
  }

 private:
  Result<void> add_directory(const std::string& directory) {
    std::error_code failed;
    std::vector<fs::directory_entry> entries;
    fs::directory_iterator at(directory, failed);
    for (; !failed && at != fs::directory_iterator(); at.increment(failed)) entries.push_back(*at);
    if (failed) unreadable(directory, failed.message());
    // As if all paths of the tree were sorted: a directory is compared with its slash.
    const auto sort_key = [](const fs::directory_entry& entry) {
      std::error_code ignored;
      return entry.path().string() + (entry.symlink_status(ignored).type() == fs::file_type::directory ? "/" : "");
    };
    std::sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) { return sort_key(a) < sort_key(b); });
    for (const fs::directory_entry& entry : entries) {
      if (statistics_.capped) break;
      std::error_code ignored;
      const fs::file_type type = entry.symlink_status(ignored).type();
      const bool hidden = entry.path().filename().string().starts_with('.');
      if (!hidden && type == fs::file_type::directory) {
        KINTSUGI_TRY(add_directory(entry.path().string()));
      } else if (!hidden && type == fs::file_type::regular) {
        KINTSUGI_TRY(add_file(entry.path().string()));
      } else {
        ++statistics_.skipped_other;
      }
    }
    return {};
  }

  Result<void> add_file(const std::string& path) {
    if (statistics_.capped) return {};
    const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info {};
    if (!fd.valid() || ::fstat(fd.get(), &info) != 0) {
      unreadable(path, strerror(errno));
      return {};
    }
    if (!S_ISREG(info.st_mode)) {
      ++statistics_.skipped_other;
      return {};
    }
    return add_document(fd.get(), path);
  }

  Result<void> add_document(int fd, const std::string& path) {
    const PrepareStatistics before = statistics_;
    const std::array<std::uint64_t, 256> counts_before = counts_;
    const auto take_back = [&]() -> Result<void> {
      statistics_ = before;
      counts_ = counts_before;
      return writer_.cut_to(before.tokens);
    };
    for (bool first = true;; first = false) {
      const ssize_t n = ::read(fd, chunk_.data(), chunk_.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const std::string why = strerror(errno);
        KINTSUGI_TRY(take_back());
        unreadable(path, why);
        return {};
      }
      if (n == 0) {
        if (first)
          ++statistics_.skipped_other;
        else
          ++statistics_.documents;
        if (options_.progress) options_.progress(statistics_);
        return {};
      }
      const auto size = static_cast<std::size_t>(n);
      if (memchr(chunk_.data(), 0, size) != nullptr) {
        KINTSUGI_TRY(take_back());
        ++statistics_.skipped_binary;
        return {};
      }
      if (first && statistics_.documents > 0) KINTSUGI_TRY(append(&kSeparatorByte, 1));
      KINTSUGI_TRY(append(chunk_.data(), size));
      if (statistics_.capped) {
        if (statistics_.tokens > before.tokens) ++statistics_.documents;
        return {};
      }
    }
  }

  Result<void> append(const unsigned char* bytes, std::size_t count) {
    const std::uint64_t room = options_.max_bytes - statistics_.tokens;
    if (count > room) {
      statistics_.capped = true;
      count = static_cast<std::size_t>(room);
    }
    for (std::size_t i = 0; i < count; ++i) ++counts_[bytes[i]];
    statistics_.tokens += count;
    if (options_.progress && statistics_.tokens - last_progress_ >= kProgressBytes) {
      last_progress_ = statistics_.tokens;
      options_.progress(statistics_);
    }
    return writer_.append(bytes, count);
  }

  void unreadable(const std::string& path, const std::string& why) {
    if (statistics_.skipped_unreadable++ == 0) statistics_.first_unreadable = path + ": " + why;
  }

  static constexpr unsigned char kSeparatorByte = static_cast<unsigned char>(kDocumentSeparator);
  const PrepareOptions& options_;
  TokenWriter writer_;
  PrepareStatistics statistics_;
  std::array<std::uint64_t, 256> counts_{};
  std::vector<unsigned char> chunk_ = std::vector<unsigned char>(kChunkBytes);
  std::uint64_t last_progress_ = 0;
};

}  // namespace

std::string PrepareStatistics::summary() const {
  std::string line = std::to_string(documents) + " documents, " + std::to_string(tokens) + " tokens";
  if (skipped_binary > 0)
    line += ", " + std::to_string(skipped_binary) + " binary files skipped (they hold a NUL byte)";
  if (skipped_other > 0)
    line += ", " + std::to_string(skipped_other) + " links, hidden, special or empty entries skipped";
  if (skipped_unreadable > 0) {
    line += ", " + std::to_string(skipped_unreadable) + " unreadable entries skipped (first: " + first_unreadable + ")";
  }
  if (capped) line += ", stopped at the byte limit";
  return line;
}

Result<PrepareStatistics> prepare(const PrepareOptions& options) {
  if (options.max_bytes == 0) return Error{ErrorAction::tell_user, "--max-bytes 0 leaves nothing to prepare"};
  for (const std::string& input : options.inputs) {
    std::error_code different;
    if (std::filesystem::equivalent(input, options.output, different) && !different) {
      return Error{ErrorAction::tell_user,
                   "--output " + options.output + " is an input; its text would be lost. Name another file"};
    }
  }
  KINTSUGI_TRY_ASSIGN(TokenWriter writer, TokenWriter::create(options.output));
  Preparation preparation(options, std::move(writer));
  for (const std::string& input : options.inputs) KINTSUGI_TRY(preparation.add_input(input));
  return preparation.finish();
}

}  // namespace kintsugi
