#include "base/file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "tests/base/temporary_folder.hpp"

namespace kintsugi {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::ptrdiff_t entries_in(const TemporaryFolder& folder) {
  return std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator());
}

TEST(File, what_is_written_is_read_back_and_no_temporary_is_left) {
  const TemporaryFolder folder;
  const std::string path = folder.file("state");
  ASSERT_TRUE(write_file_atomically(path, bytes_of("first")).ok());
  ASSERT_TRUE(write_file_atomically(path, bytes_of("the second, longer")).ok());
  EXPECT_EQ(*read_text_file(path, 100), "the second, longer");
  ASSERT_TRUE(write_file_atomically(path, {}).ok());
  EXPECT_EQ(*read_text_file(path, 100), "");
  EXPECT_EQ(entries_in(folder), 1);
}

TEST(File, a_write_that_fails_leaves_the_old_thing_and_no_temporary) {
  const TemporaryFolder folder;
  const std::string taken = folder.file("taken");
  std::filesystem::create_directory(taken);  // a file cannot be renamed over a folder
  const Result<void> written = write_file_atomically(taken, bytes_of("x"));
  ASSERT_FALSE(written.ok());
  EXPECT_NE(written.error().message.find("cannot rename to " + taken), std::string::npos) << written.error().message;
  EXPECT_TRUE(std::filesystem::is_directory(taken));
  EXPECT_EQ(entries_in(folder), 1);
}

TEST(File, a_missing_folder_is_named_in_the_error) {
  const TemporaryFolder folder;
  const std::string path = folder.file("absent/state");
  const Result<void> written = write_file_atomically(path, bytes_of("x"));
  ASSERT_FALSE(written.ok());
  EXPECT_NE(written.error().message.find(path), std::string::npos);
  EXPECT_NE(written.error().message.find("No such file or directory"), std::string::npos);
}

TEST(File, a_bare_file_name_means_the_working_folder) {
  const TemporaryFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const Result<void> written = write_file_atomically("bare", bytes_of("x"));
  std::filesystem::current_path(before);
  EXPECT_TRUE(written.ok());
  EXPECT_EQ(*read_text_file(folder.file("bare"), 1), "x");
}

TEST(File, reading_refuses_what_is_absent_too_large_or_no_file) {
  const TemporaryFolder folder;
  EXPECT_NE(read_file(folder.file("absent"), 10).error().message.find("No such file"), std::string::npos);

  ASSERT_TRUE(write_file_atomically(folder.file("big"), bytes_of("12345678901")).ok());
  const Result<std::vector<std::byte>> big = read_file(folder.file("big"), 10);
  ASSERT_FALSE(big.ok());
  EXPECT_NE(big.error().message.find("it has 11 bytes, the limit is 10"), std::string::npos) << big.error().message;

  EXPECT_NE(read_file(folder.path().string(), 10).error().message.find("not a regular file"), std::string::npos);
}

TEST(File, reading_a_named_pipe_without_a_writer_is_refused_at_once) {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(read_file(pipe, 10).error().message.find("not a regular file"), std::string::npos);
}

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

TEST(File, a_descriptor_is_closed_once_by_its_last_owner) {
  FileDescriptor first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(first.valid());
  const int fd = first.get();
  FileDescriptor second(std::move(first));
  EXPECT_EQ(second.get(), fd);
  FileDescriptor third;
  third = std::move(second);
  EXPECT_TRUE(is_open(fd));
  third.reset();
  EXPECT_FALSE(is_open(fd));
  EXPECT_FALSE(third.valid());
}

TEST(File, a_released_descriptor_stays_open) {
  int fd = -1;
  {
    FileDescriptor owner(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    fd = owner.release();
  }
  EXPECT_TRUE(is_open(fd));
  ::close(fd);
}

}  // namespace
}  // namespace kintsugi
